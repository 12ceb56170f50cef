// The program's imports from JavaScript.
mergeInto(LibraryManager.library, {
  // Names of fiber.cpp's, for the linker: the pass --asyncify (asyncify.py) puts functions of its own in their place.
  start_unwind: function () {},
  stop_unwind: function () {},
  start_rewind: function () {},
  stop_rewind: function () {},
  // A block begins: a sign of life, for who waits (worker.js).
  flashbook_block_begins: function (number) {
    if (Module.blockBegins) Module.blockBegins(number);
  },
});
