# Tests that run as real MPI jobs; their main program is tests/distributed/harness.

# The options with which tests start ranks: oversubscribed, unbound (a rank's threads need more than one core), allowed
# as root (containers), and without the single-copy mechanism that containers forbid.
set(DDP_MPIRUN ${MPIEXEC_EXECUTABLE} --oversubscribe --bind-to none)
set(DDP_MPI_SETTINGS
  OMPI_ALLOW_RUN_AS_ROOT=1
  OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  OMPI_MCA_btl_vader_single_copy_mechanism=none
  # AddressSanitizer reports leaks of MPI; ThreadSanitizer reports races inside MPI.
  ASAN_OPTIONS=detect_leaks=0
  TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/tsan.supp)

# ddp_mpi_environment(OUT TEST): the environment of a test. Each test has its own session directory for MPI: otherwise
# all jobs of a user share one, and a job that ends removes it while another one starts. The path must be short.
string(MD5 DDP_MPI_FOLDER "${CMAKE_BINARY_DIR}")
string(SUBSTRING "${DDP_MPI_FOLDER}" 0 8 DDP_MPI_FOLDER)
function(ddp_mpi_environment out test)
  set(${out} "${DDP_MPI_SETTINGS};OMPI_MCA_orte_tmpdir_base=/tmp/ddp-tests-${DDP_MPI_FOLDER}/${test}" PARENT_SCOPE)
endfunction()

# ddp_mpi_test(NAME RANKS 1 2 3 4 SOURCES a.cpp ... LIBS lib ...) defines a GoogleTest program and, for each number of
# ranks, the CTest case NAME.ranksN, which runs it under mpirun. All ranks run all its tests; a failure on any rank
# fails the case, and so does a job with fewer ranks than requested.
function(ddp_mpi_test name)
  cmake_parse_arguments(ARG "" "" "RANKS;SOURCES;LIBS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ddp_warnings ddp_mpi_test_main GTest::gmock ${ARG_LIBS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  ddp_compile_quickly(${name} ${ARG_LIBS})
  foreach(ranks IN LISTS ARG_RANKS)
    add_test(NAME ${name}.ranks${ranks} COMMAND ${DDP_MPIRUN} -np ${ranks} $<TARGET_FILE:${name}>)
    ddp_mpi_environment(environment ${name}.ranks${ranks})
    set_tests_properties(${name}.ranks${ranks} PROPERTIES
      ENVIRONMENT "${environment};DDP_EXPECT_RANKS=${ranks}"
      LABELS "distributed;${ARG_LABELS}" PROCESSORS ${ranks} TIMEOUT 300)
  endforeach()
endfunction()
