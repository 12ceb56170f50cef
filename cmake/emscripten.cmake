# The toolchain of the preset `web`: emcc's own file for CMake, which is next to it.
find_program(FLASHBOOK_EMCC emcc REQUIRED)
file(REAL_PATH ${FLASHBOOK_EMCC} emcc)
cmake_path(GET emcc PARENT_PATH emscripten)
include(${emscripten}/cmake/Modules/Platform/Emscripten.cmake)
