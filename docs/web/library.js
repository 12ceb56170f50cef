// The functions that the program imports from JavaScript.
mergeInto(LibraryManager.library, {
  // Placeholders for the linker, which fiber.cpp calls: the pass --asyncify (asyncify.py) replaces them with its own
  // functions.
  start_unwind: function () {},
  stop_unwind: function () {},
  start_rewind: function () {},
  stop_rewind: function () {},
  // A block begins: tells the waiting worker.js that the run is alive.
  flashbook_block_begins: function (number) {
    if (Module.blockBegins) Module.blockBegins(number);
  },
});
