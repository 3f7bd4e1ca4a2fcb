# Tests that run as real MPI jobs; their main program is tests/distributed/harness.

# How a test starts ranks: more than there are cores, unbound (a rank's threads need more than one core), as root too
# (containers), and without the single-copy mechanism that containers forbid.
set(DDP_MPIRUN ${MPIEXEC_EXECUTABLE} --oversubscribe --bind-to none)
set(DDP_MPI_ENVIRONMENT
  OMPI_ALLOW_RUN_AS_ROOT=1
  OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  OMPI_MCA_btl_vader_single_copy_mechanism=none
  # AddressSanitizer sees what MPI leaves behind as leaks; ThreadSanitizer sees races inside of it.
  ASAN_OPTIONS=detect_leaks=0
  TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/tsan.supp)

# ddp_mpi_test(NAME RANKS 1 2 3 4 SOURCES a.cpp ... LIBS lib ...)
# makes one GoogleTest program and, for each number of ranks, the CTest case NAME.ranksN, which runs it under mpirun. All
# ranks run all its tests; a failure on any of them fails the case, and so does a job of fewer ranks than asked for.
function(ddp_mpi_test name)
  cmake_parse_arguments(ARG "" "" "RANKS;SOURCES;LIBS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ddp_warnings ddp_mpi_test_main GTest::gmock ${ARG_LIBS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  ddp_compile_quickly(${name} ${ARG_LIBS})
  foreach(ranks IN LISTS ARG_RANKS)
    add_test(NAME ${name}.ranks${ranks} COMMAND ${DDP_MPIRUN} -np ${ranks} $<TARGET_FILE:${name}>)
    set_tests_properties(${name}.ranks${ranks} PROPERTIES
      ENVIRONMENT "${DDP_MPI_ENVIRONMENT};DDP_EXPECT_RANKS=${ranks}"
      LABELS "distributed;${ARG_LABELS}" PROCESSORS ${ranks} TIMEOUT 300)
  endforeach()
endfunction()
