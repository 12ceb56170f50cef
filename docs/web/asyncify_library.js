// Names that fiber.cpp imports, for the linker: the pass --asyncify (asyncify.py) puts functions of its own in their place.
mergeInto(LibraryManager.library, {
  start_unwind: function () {},
  stop_unwind: function () {},
  start_rewind: function () {},
  stop_rewind: function () {},
});
