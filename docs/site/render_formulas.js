// Run by Duktape after katex.js: prints, for each of `formulas`, its HTML or what is wrong with it.
print(JSON.stringify(formulas.map(function (formula) {
  try {
    var html = katex.renderToString(formula.tex, {displayMode: formula.display});
    if (formula.display) html = '<div class="formula">' + html + '</div>';
    return {html: '<!-- formula -->' + html + '<!-- end -->'};
  } catch (error) {
    return {error: error.message};
  }
})));
