# How every folder of src/ becomes a library and every file of tests/ a test.

# Warnings are errors, unless a compiler newer than ours is to be tried: -DCMAKE_COMPILE_WARNING_AS_ERROR=OFF.
if(NOT DEFINED CMAKE_COMPILE_WARNING_AS_ERROR)
  set(CMAKE_COMPILE_WARNING_AS_ERROR ON)
endif()
add_library(ddp_warnings INTERFACE)
set(ddp_warning_options
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor
  -Wold-style-cast -Woverloaded-virtual
  # GCC 12 finds overlaps in std::string that are none (its bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
target_compile_options(ddp_warnings INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${ddp_warning_options}>")

# The program's version, for --version and for the module for GPUs, which must be of the same.
add_library(ddp_version INTERFACE)
target_compile_definitions(ddp_version INTERFACE DDP_VERSION="${PROJECT_VERSION}")

if(DDP_SANITIZE)
  add_compile_options(
    "$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${DDP_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all>")
  add_link_options(-fsanitize=${DDP_SANITIZE})
endif()

# Most of the time of a compiler goes into headers, which the sources of a target share.
option(DDP_UNITY "Compile the sources of each target together: faster from nothing, slower after a change" OFF)
function(ddp_compile_together target)
  if(DDP_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
    # Then no source is the main file, in which a type may have parts without linkage.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

# ddp_library(NAME SOURCES a.cpp ... [PUBLIC lib ...] [PRIVATE lib ...])
# makes the static library ddp_NAME, aliased ddp::NAME; headers are included from src/.
function(ddp_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(ddp_${name} STATIC ${ARG_SOURCES})
  add_library(ddp::${name} ALIAS ddp_${name})
  target_include_directories(ddp_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(ddp_${name} PUBLIC ${ARG_PUBLIC} PRIVATE ddp_warnings ${ARG_PRIVATE})
  ddp_compile_together(ddp_${name})
endfunction()

# ddp_compile_quickly(TARGET LIB...): the test program TARGET, linked with these, is hardly optimised, as the code under test is,
# and takes the headers of all tests from one precompiled file, as parsing them takes longer than compiling most tests; but
# not where it is compiled for OpenMP.
function(ddp_compile_quickly target)
  ddp_compile_together(${target})
  target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
  if(OpenMP::OpenMP_CXX IN_LIST ARGN)
    return()
  endif()
  if(NOT TARGET ddp_test_headers)
    file(WRITE ${PROJECT_BINARY_DIR}/tests/headers.cpp "int main() { return 0; }\n")
    add_executable(ddp_test_headers ${PROJECT_BINARY_DIR}/tests/headers.cpp)
    target_link_libraries(ddp_test_headers PRIVATE ddp_warnings GTest::gmock fmt::fmt)
    target_compile_options(ddp_test_headers PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
    target_precompile_headers(ddp_test_headers PRIVATE <algorithm> <array> <filesystem> <functional> <map> <memory>
      <optional> <span> <string> <vector> <fmt/core.h> <gmock/gmock.h> <gtest/gtest.h>)
  endif()
  target_link_libraries(${target} PRIVATE fmt::fmt)  # its macros are part of the headers
  target_precompile_headers(${target} REUSE_FROM ddp_test_headers)
  # GCC 12 takes what it inlines from such a file for our own code, and warns of what is none.
  target_compile_options(${target} PRIVATE
    $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds;-Wno-stringop-overflow;-Wno-stringop-overread>)
endfunction()

# ddp_test(NAME [WHOLE] SOURCES a.cpp ... LIBS lib ...) makes a GoogleTest program whose cases CTest lists one by one, or as
# one test where they come as a WHOLE: those that load gigabytes of libraries, since CTest runs a program to list its cases,
# and reading such libraries from a cold disk takes longer than all else. One thread each, as CTest starts several at a time; a test that wants more says so.
function(ddp_test name)
  cmake_parse_arguments(ARG "WHOLE" "" "SOURCES;LIBS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ddp_warnings GTest::gmock GTest::gtest_main ${ARG_LIBS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  ddp_compile_quickly(${name} ${ARG_LIBS})
  if(ARG_WHOLE)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES LABELS "unit;${ARG_LABELS}" ENVIRONMENT OMP_NUM_THREADS=1 TIMEOUT 600)
  else()
    gtest_discover_tests(${name} TEST_PREFIX "${name}." DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 120
      PROPERTIES LABELS "unit;${ARG_LABELS}" ENVIRONMENT OMP_NUM_THREADS=1 TIMEOUT 600)
  endif()
endfunction()
