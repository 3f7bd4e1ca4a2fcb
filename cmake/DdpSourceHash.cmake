# ddp_source_hash(TARGET FUNCTION FOLDER... [EXCEPT FOLDER...]) adds a source to TARGET that defines `const char* ddp::FUNCTION()`:
# a hash of all sources in the folders and below them, the compiler and its options. It changes with every build whose kernels may
# differ, and only then. Run as a script (cmake -P) this file writes that source.
if(CMAKE_SCRIPT_MODE_FILE)
  file(STRINGS ${LIST} files)
  set(text "${SALT}")
  foreach(file IN LISTS files)
    file(SHA256 ${file} hash)
    # Not the path, which differs between clones, but the name, which includes know.
    get_filename_component(name ${file} NAME)
    string(APPEND text "\n${name} ${hash}")
  endforeach()
  string(SHA256 hash "${text}")
  string(SUBSTRING ${hash} 0 16 hash)
  file(WRITE ${OUTPUT}
    "// Written by cmake/DdpSourceHash.cmake.\n"
    "namespace ddp {\n"
    "const char* ${FUNCTION}();\n"
    "const char* ${FUNCTION}() { return \"${hash}\"; }\n"
    "}  // namespace ddp\n")
  return()
endif()

set(ddp_source_hash_script ${CMAKE_CURRENT_LIST_FILE})
function(ddp_source_hash target function)
  cmake_parse_arguments(ARG "" "" "EXCEPT" ${ARGN})
  set(files "")
  foreach(folder IN LISTS ARG_UNPARSED_ARGUMENTS)
    file(GLOB_RECURSE found CONFIGURE_DEPENDS ${folder}/*.cpp ${folder}/*.h ${folder}/*.inc ${folder}/*.cu ${folder}/*.cuh)
    list(SORT found)
    list(APPEND files ${found})
  endforeach()
  foreach(folder IN LISTS ARG_EXCEPT)
    foreach(file IN LISTS files)
      cmake_path(IS_PREFIX folder "${file}" inside)
      if(inside)
        list(REMOVE_ITEM files "${file}")
      endif()
    endforeach()
  endforeach()
  string(TOUPPER "${CMAKE_BUILD_TYPE}" type)
  # The custom command runs again if any of this changes, since the list is rewritten.
  set(salt "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${type}} ${DDP_SANITIZE}")
  string(APPEND salt " ${CMAKE_CUDA_COMPILER_VERSION} ${CMAKE_CUDA_FLAGS} ${CMAKE_CUDA_ARCHITECTURES}")
  string(REPLACE ";" "," salt "${salt}")
  set(list ${CMAKE_CURRENT_BINARY_DIR}/${function}.txt)
  string(REPLACE ";" "\n" lines "${files}")
  file(CONFIGURE OUTPUT ${list} CONTENT "${lines}\n" @ONLY)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${function}.cpp)
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DLIST=${list} -DOUTPUT=${output} -DFUNCTION=${function} -DSALT=${salt}
      -P ${ddp_source_hash_script}
    DEPENDS ${files} ${list} ${ddp_source_hash_script}
    COMMENT "Hashing the sources of ${target}" VERBATIM)
  # clang-tidy runs without a build.
  set_source_files_properties(${output} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_sources(${target} PRIVATE ${output})
endfunction()
