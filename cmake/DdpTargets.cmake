# Functions that define the libraries of src/ and the tests of tests/.

# Warnings are errors; -DCMAKE_COMPILE_WARNING_AS_ERROR=OFF is for newer compilers.
if(NOT DEFINED CMAKE_COMPILE_WARNING_AS_ERROR)
  set(CMAKE_COMPILE_WARNING_AS_ERROR ON)
endif()
add_library(ddp_warnings INTERFACE)
set(ddp_warning_options
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor
  -Wold-style-cast -Woverloaded-virtual
  # GCC 12 has false positives about overlaps in std::string (bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
target_compile_options(ddp_warnings INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${ddp_warning_options}>")

# The program's version, for --version and for the GPU module, which must have the same version.
add_library(ddp_version INTERFACE)
target_compile_definitions(ddp_version INTERFACE DDP_VERSION="${PROJECT_VERSION}")

if(DDP_SANITIZE)
  add_compile_options(
    "$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${DDP_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all>")
  add_link_options(-fsanitize=${DDP_SANITIZE})
endif()

# Most compile time is spent on headers, which the sources of a target share.
option(DDP_UNITY "Compile the sources of each target together: faster full builds, slower incremental builds" OFF)
function(ddp_compile_together target)
  if(DDP_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
    # Then no source is the main file, so this warning about types without linkage does not apply.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

# ddp_library(NAME [COLD] SOURCES a.cpp ... [PUBLIC lib ...] [PRIVATE lib ...]) defines the static library ddp_NAME, aliased
# ddp::NAME; headers are included from src/. COLD: no loop in it decides how long a step takes, so that little optimisation,
# which compiles in two thirds of the time, suffices.
function(ddp_library name)
  cmake_parse_arguments(ARG "COLD" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(ddp_${name} STATIC ${ARG_SOURCES})
  add_library(ddp::${name} ALIAS ddp_${name})
  target_include_directories(ddp_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(ddp_${name} PUBLIC ${ARG_PUBLIC} PRIVATE ddp_warnings ${ARG_PRIVATE})
  if(ARG_COLD AND DDP_SANITIZE)
    # Instrumented, code compiles in half the time without any optimisation.
    target_compile_options(ddp_${name} PRIVATE -O0)
  elseif(ARG_COLD)
    target_compile_options(ddp_${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  ddp_compile_together(ddp_${name})
endfunction()

# ddp_compile_quickly(TARGET LIB...): compiles the test program TARGET without optimisation (unlike the code under test), in two
# thirds of the time, instrumented in half of it; only tests/backend, which computes references, is optimised a little. And
# with precompiled headers, since parsing these takes longer than compiling most tests; except with OpenMP.
function(ddp_compile_quickly target)
  ddp_compile_together(${target})
  set(headers ddp_test_headers)
  set(optimisation $<$<COMPILE_LANGUAGE:CXX>:-O0>)
  if(NOT DDP_SANITIZE AND CMAKE_CURRENT_SOURCE_DIR STREQUAL ${PROJECT_SOURCE_DIR}/tests/backend)
    set(headers ddp_backend_test_headers)
    set(optimisation $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
  endif()
  target_compile_options(${target} PRIVATE ${optimisation})
  if(OpenMP::OpenMP_CXX IN_LIST ARGN)
    return()
  endif()
  if(NOT TARGET ${headers})
    file(WRITE ${PROJECT_BINARY_DIR}/tests/headers.cpp "int main() { return 0; }\n")
    add_executable(${headers} ${PROJECT_BINARY_DIR}/tests/headers.cpp)
    target_link_libraries(${headers} PRIVATE ddp_warnings GTest::gmock fmt::fmt)
    target_compile_options(${headers} PRIVATE ${optimisation})
    target_precompile_headers(${headers} PRIVATE <algorithm> <array> <filesystem> <functional> <map> <memory>
      <optional> <span> <string> <vector> <fmt/core.h> <gmock/gmock.h> <gtest/gtest.h>)
  endif()
  target_link_libraries(${target} PRIVATE fmt::fmt)  # for the compile definitions in the headers
  target_precompile_headers(${target} REUSE_FROM ${headers})
  # GCC 12 gives false warnings about code inlined from precompiled headers.
  target_compile_options(${target} PRIVATE
    $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds;-Wno-stringop-overflow;-Wno-stringop-overread>)
endfunction()

# The environment of tests with two threads. Threads that wait must not spin: ctest runs several tests at a time.
set(ddp_two_threads OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive)

# ddp_test(NAME [WHOLE] SOURCES a.cpp ... LIBS lib ...) defines a GoogleTest program whose cases CTest lists
# individually, or with WHOLE as one test, for programs that load gigabytes of libraries: CTest runs a program to list
# its cases, which is slow from a cold disk. Tests use one thread unless they set more, because CTest runs several at a
# time.
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
