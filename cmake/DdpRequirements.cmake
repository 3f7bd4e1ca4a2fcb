# Checks the requirements of the build: all missing ones are reported at once, with the names of their packages.
#
#   ddp_need(zlib ZLIB_FOUND)     notes that zlib is missing unless the condition, in the syntax of if(), holds
#   ddp_check_needs()             ends the configuration if anything is missing
#
# The first column of launch/packages has the keys.
set(ddp_missing "")
function(ddp_need key)
  if(NOT (${ARGN}))
    list(APPEND ddp_missing ${key})
    set(ddp_missing ${ddp_missing} PARENT_SCOPE)
  endif()
endfunction()

function(ddp_check_needs)
  if(NOT ddp_missing)
    return()
  endif()
  set(systems apt dnf conda spack)
  file(STRINGS ${PROJECT_SOURCE_DIR}/launch/packages lines REGEX "^[^#]")
  foreach(line IN LISTS lines)
    separate_arguments(words UNIX_COMMAND "${line}")
    list(POP_FRONT words key purpose)
    if(NOT key IN_LIST ddp_missing)
      continue()
    endif()
    foreach(system IN LISTS systems)
      list(POP_FRONT words names)
      string(REPLACE "," " " names "${names}")
      string(APPEND all_${system} " ${names}")
    endforeach()
  endforeach()
  set(text "")
  foreach(system IN LISTS systems)
    string(APPEND text "\n  ${system}:${all_${system}}")
  endforeach()
  string(REPLACE ";" ", " missing "${ddp_missing}")
  # launch/setup parses this line.
  message(STATUS "Missing: ${missing}")
  message(FATAL_ERROR "Missing: ${missing}. Install these packages, or add their prefixes to CMAKE_PREFIX_PATH:${text}\n")
endfunction()
