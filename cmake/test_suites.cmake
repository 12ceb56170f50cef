# ctest reads this file: it asks a GoogleTest program for its tests and adds each suite as one test. One process per test would
# spend more time starting than testing. Long suites are split into shards, so that cores share them; suites with many
# tests begin first.
function(add_suites name program filter labels standard)
  if(NOT EXISTS ${program})
    add_test(${name}.NOT_BUILT ${program})
    if(standard)
      list(APPEND labels standard)
    endif()
    set_tests_properties(${name}.NOT_BUILT PROPERTIES LABELS "${labels}")
    return()
  endif()
  execute_process(COMMAND ${program} --gtest_list_tests --gtest_filter=${filter} OUTPUT_VARIABLE listed RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "${program} cannot list its tests: ${failed}")
  endif()
  string(REGEX MATCH "-.*" excluded "${filter}")
  string(REGEX REPLACE "#[^\n]*" "" listed "${listed}")  # removes comments about parameters
  string(REGEX MATCHALL "(^|\n)[^ \n]+\\. *(\n  [^\n]*)+" suites "${listed}")
  foreach(suite IN LISTS suites)
    string(REGEX MATCHALL "\n  " tests "${suite}")
    list(LENGTH tests count)
    string(REGEX MATCH "[^ \n]+" suite "${suite}")  # including its dot
    if(standard AND suite MATCHES "${standard}")
      set(labels_of_suite ${labels} standard)
    else()
      set(labels_of_suite ${labels})
    endif()
    math(EXPR shards "(${count} + 15) / 16")
    foreach(shard RANGE 1 ${shards})
      set(test ${name}.${suite})
      string(REGEX REPLACE "\\.$" "" test ${test})
      if(shards GREATER 1)
        string(APPEND test "/${shard}of${shards}")
      endif()
      math(EXPR index "${shard} - 1")
      add_test(${test} ${program} --gtest_filter=${suite}*${excluded})
      # A suite counts as skipped only if none of its tests ran; otherwise it has passed or failed.
      set_tests_properties(${test} PROPERTIES COST ${count} ENVIRONMENT "GTEST_TOTAL_SHARDS=${shards};GTEST_SHARD_INDEX=${index}"
        SKIP_REGULAR_EXPRESSION "PASSED  . 0 tests\\.[\n](.  SKIPPED [^\n]*[\n]?)+$" TIMEOUT 300
        LABELS "${labels_of_suite}")
    endforeach()
  endforeach()
endfunction()
