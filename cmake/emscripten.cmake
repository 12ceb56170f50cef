# The toolchain of the preset `web`: wherever emcc is, its own file for CMake lies beside it.
find_program(FLASHBOOK_EMCC emcc REQUIRED)
file(REAL_PATH ${FLASHBOOK_EMCC} emcc)
cmake_path(GET emcc PARENT_PATH emscripten)
include(${emscripten}/cmake/Modules/Platform/Emscripten.cmake)
