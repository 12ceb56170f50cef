# What programs and tests take from elsewhere: the machine's own where it has it, or else downloaded into the build folder, pinned by hash.
# The versions are those of Debian 12, but for CLI11, which Debian repacks.
include(FetchContent)
set(CMAKE_POLICY_DEFAULT_CMP0077 NEW)  # what is set here holds for options of theirs
set(CMAKE_POLICY_VERSION_MINIMUM 3.5)  # CMake 4 takes no project that asks for less, as theirs of then do
foreach(option IN ITEMS BUILD_GMOCK INSTALL_GTEST CLI11_BUILD_TESTS CLI11_BUILD_EXAMPLES CLI11_BUILD_DOCS JSON_BuildTests)
  set(${option} OFF)
endforeach()
FetchContent_Declare(GTest
  URL https://github.com/google/googletest/archive/refs/tags/release-1.12.1.tar.gz
  URL_HASH SHA256=81964fe578e9bd7c94dfdb09c8e4d6e6759e19967e397dbea48d1c10e45d0df2
  FIND_PACKAGE_ARGS)
FetchContent_Declare(CLI11
  URL https://github.com/CLIUtils/CLI11/archive/v2.3.2.tar.gz
  URL_HASH SHA256=aac0ab42108131ac5d3344a9db0fdf25c4db652296641955720a4fbe52334e22
  FIND_PACKAGE_ARGS)
FetchContent_Declare(nlohmann_json
  URL https://github.com/nlohmann/json/archive/refs/tags/v3.11.2.tar.gz
  URL_HASH SHA256=d69f9deb6a75e2580465c6c4c5111b89c4dc2fa94e3a85fcd2ffcd9a143d9273
  FIND_PACKAGE_ARGS)
set(warning_is_error ${CMAKE_COMPILE_WARNING_AS_ERROR})
set(CMAKE_COMPILE_WARNING_AS_ERROR OFF)
FetchContent_MakeAvailable(GTest CLI11 nlohmann_json)
set(CMAKE_COMPILE_WARNING_AS_ERROR ${warning_is_error})
