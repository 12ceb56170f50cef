# The packages that programs and tests use: the machine's own if it has them; otherwise they are downloaded into the
# build folder, pinned by hash, with a timeout of 15 seconds. The versions are those of Debian 12, except for CLI11,
# which Debian repackages.
include(FetchContent)
set(CMAKE_POLICY_DEFAULT_CMP0077 NEW)  # values set here apply to the packages' own options
set(CMAKE_POLICY_VERSION_MINIMUM 3.5)  # CMake 4 rejects projects that require an older version, as these do
foreach(option IN ITEMS BUILD_GMOCK INSTALL_GTEST CLI11_BUILD_TESTS CLI11_BUILD_EXAMPLES CLI11_BUILD_DOCS JSON_BuildTests)
  set(${option} OFF)
endforeach()

# flashbook_package(NAME URL SHA256 [HEADER TARGET]): for a library that is a single header, HEADER names it; it may be
# installed without a CMake package.
function(flashbook_package name url hash)
  string(TOUPPER ${name} upper)
  if(NOT FETCHCONTENT_SOURCE_DIR_${upper})
    find_package(${name} QUIET)
    if(${name}_FOUND)
      return()
    endif()
    if(ARGN)
      list(GET ARGN 0 header)
      list(GET ARGN 1 target)
      find_path(FLASHBOOK_${upper}_HEADERS ${header})
      if(FLASHBOOK_${upper}_HEADERS)
        add_library(${target} INTERFACE IMPORTED)
        target_include_directories(${target} INTERFACE ${FLASHBOOK_${upper}_HEADERS})
        return()
      endif()
    endif()
    set(file ${CMAKE_BINARY_DIR}/archives/${name}.tar.gz)
    if(NOT EXISTS ${file})
      message(STATUS "${name} is missing: downloading ${url} for at most 15 seconds")
      file(DOWNLOAD ${url} ${file}.part TIMEOUT 15 STATUS status)
      list(POP_FRONT status code reason)
      if(code)
        message(FATAL_ERROR "${name} is missing and cannot be downloaded (${reason}): install it, as ./flashbook does")
      endif()
      file(RENAME ${file}.part ${file})
    endif()
  endif()
  FetchContent_Declare(${name} URL ${file} URL_HASH SHA256=${hash})
  set(CMAKE_COMPILE_WARNING_AS_ERROR OFF)
  FetchContent_MakeAvailable(${name})
endfunction()

flashbook_package(CLI11 https://github.com/CLIUtils/CLI11/archive/v2.3.2.tar.gz
  aac0ab42108131ac5d3344a9db0fdf25c4db652296641955720a4fbe52334e22 CLI/CLI.hpp CLI11::CLI11)
flashbook_package(nlohmann_json https://github.com/nlohmann/json/archive/refs/tags/v3.11.2.tar.gz
  d69f9deb6a75e2580465c6c4c5111b89c4dc2fa94e3a85fcd2ffcd9a143d9273 nlohmann/json.hpp nlohmann_json::nlohmann_json)
if(FLASHBOOK_TESTS)
  flashbook_package(GTest https://github.com/google/googletest/archive/refs/tags/release-1.12.1.tar.gz
    81964fe578e9bd7c94dfdb09c8e4d6e6759e19967e397dbea48d1c10e45d0df2)
endif()
