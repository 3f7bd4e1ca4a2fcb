# Runs COMMAND (a list) and requires that it exits non-zero, by itself, with output that matches the pattern SAYS.
#   cmake -DCOMMAND="mpirun;-np;2;..." -DSAYS="..." -P expect_failure.cmake
execute_process(COMMAND ${COMMAND} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE err TIMEOUT 60)
message("${out}${err}")
if(NOT code MATCHES "^[1-9][0-9]*$")
  message(FATAL_ERROR "a non-zero exit code was expected, the result is: ${code}")
endif()
if(NOT "${out}${err}" MATCHES "${SAYS}")
  message(FATAL_ERROR "the output should match: ${SAYS}")
endif()
