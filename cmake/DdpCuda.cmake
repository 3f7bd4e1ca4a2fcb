# Finds the dependencies of the code for NVIDIA GPUs: CUDA's compiler and toolkit, cuDNN and NCCL. Sets DDP_CUDA_FOUND,
# and if true
#
#   ddp_cudnn, ddp_nccl      imported libraries with their headers
#   ddp_cuda_library(NAME SOURCES ...)   as ddp_library, for folders with .cu files
#
# If something is missing, one line names it, and the GPU module is not built.
set(DDP_CUDA AUTO CACHE STRING
  "Build the module for NVIDIA GPUs: AUTO (if all dependencies are found), DRIVER (if this machine also has a driver), ON or OFF")
set_property(CACHE DDP_CUDA PROPERTY STRINGS AUTO DRIVER ON OFF)
# The environment variable of the same name is the default, as for other CMake settings.
set(ddp_cuda_architectures "80-real;90")
if(DEFINED ENV{DDP_CUDA_ARCHITECTURES})
  set(ddp_cuda_architectures $ENV{DDP_CUDA_ARCHITECTURES})
endif()
set(DDP_CUDA_ARCHITECTURES ${ddp_cuda_architectures} CACHE STRING
  "GPUs to compile for, as CMake's CUDA_ARCHITECTURES takes them")

# A message about the missing dependency; empty if there is none.
set(ddp_cuda_missing "")

# The driver's library as the program loads it, and the kernel module, which a container shares with its host.
find_file(DDP_CUDA_DRIVER libcuda.so.1 PATHS ENV LD_LIBRARY_PATH /usr/lib/${CMAKE_SYSTEM_PROCESSOR}-linux-gnu /usr/lib64 /usr/lib
  /usr/lib/wsl/lib /usr/local/nvidia/lib64 NO_CACHE NO_DEFAULT_PATH)
if(DDP_CUDA STREQUAL "OFF")
  set(ddp_cuda_missing "DDP_CUDA is OFF")
elseif(DDP_CUDA STREQUAL "DRIVER" AND NOT DDP_CUDA_DRIVER AND NOT EXISTS /proc/driver/nvidia/version)
  set(ddp_cuda_missing "this machine has no NVIDIA driver, and DDP_CUDA is DRIVER")
else()
  include(CheckLanguage)
  # Without an architecture, the compiler uses a default that its toolkit may not support.
  set(CMAKE_CUDA_ARCHITECTURES ${DDP_CUDA_ARCHITECTURES})
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    # CMake 3.25 defines this target even if the library does not exist, as in CUDA 13.
    if(CMAKE_VERSION VERSION_LESS 3.26 AND NOT TARGET CUDA::nvToolsExt)
      add_library(CUDA::nvToolsExt INTERFACE IMPORTED)
    endif()
    find_package(CUDAToolkit QUIET)
  endif()
  if(NOT CMAKE_CUDA_COMPILER)
    set(ddp_cuda_missing "CUDA compiler (nvcc) not found")
  elseif(NOT CUDAToolkit_FOUND OR NOT TARGET CUDA::cudart_static)
    set(ddp_cuda_missing "CUDA toolkit with cudart not found")
  endif()
endif()

# Python packages of the CUDA libraries are in nvidia/NAME/{include,lib}, with versioned library names only.
set(ddp_cuda_hints "")
if(NOT ddp_cuda_missing)
  find_program(DDP_PYTHON3 python3)
  mark_as_advanced(DDP_PYTHON3)
  if(DDP_PYTHON3)
    execute_process(
      COMMAND ${DDP_PYTHON3} -c "import nvidia; print(';'.join(nvidia.__path__))"
      OUTPUT_VARIABLE packages OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    foreach(package IN LISTS packages)
      list(APPEND ddp_cuda_hints ${package}/cudnn ${package}/nccl
        ${package}/cublas ${package}/cu${CUDAToolkit_VERSION_MAJOR})
    endforeach()
  endif()
  list(APPEND ddp_cuda_hints ${CUDAToolkit_LIBRARY_ROOT} ${CUDAToolkit_TARGET_DIR})
  foreach(folder IN LISTS CUDAToolkit_INCLUDE_DIRS)
    list(APPEND ddp_cuda_hints ${folder}/..)
  endforeach()
endif()

# ddp_find_cuda_part(NAME HEADER LIBRARY NAMES...): defines the imported library ddp_NAME or reports that it is missing.
function(ddp_find_cuda_part name header)
  if(ddp_cuda_missing)
    return()
  endif()
  string(TOUPPER ${name} upper)
  find_path(DDP_${upper}_INCLUDE_DIR ${header} HINTS ${ddp_cuda_hints} PATH_SUFFIXES include)
  # Folder by folder, so that library and header match.
  find_library(DDP_${upper}_LIBRARY NAMES ${ARGN} NAMES_PER_DIR HINTS ${ddp_cuda_hints} PATH_SUFFIXES lib lib64)
  mark_as_advanced(DDP_${upper}_INCLUDE_DIR DDP_${upper}_LIBRARY)
  if(NOT DDP_${upper}_INCLUDE_DIR OR NOT DDP_${upper}_LIBRARY)
    set(ddp_cuda_missing "${header} with its library not found" PARENT_SCOPE)
    return()
  endif()
  add_library(ddp_${name} SHARED IMPORTED GLOBAL)
  set_target_properties(ddp_${name} PROPERTIES
    IMPORTED_LOCATION ${DDP_${upper}_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${DDP_${upper}_INCLUDE_DIR})
endfunction()
ddp_find_cuda_part(cudnn cudnn.h cudnn libcudnn.so.9)
ddp_find_cuda_part(nccl nccl.h nccl libnccl.so.2)
# Prefer the toolkit's cuBLASLt.
if(NOT TARGET CUDA::cublasLt)
  ddp_find_cuda_part(cublaslt cublasLt.h cublasLt libcublasLt.so.${CUDAToolkit_VERSION_MAJOR})
  if(TARGET ddp_cublaslt)
    add_library(CUDA::cublasLt ALIAS ddp_cublaslt)
  endif()
endif()

if(NOT ddp_cuda_missing AND CUDAToolkit_VERSION VERSION_LESS 12.0)
  set(ddp_cuda_missing "CUDA ${CUDAToolkit_VERSION} is older than 12.0")
endif()

if(ddp_cuda_missing)
  if(DDP_CUDA STREQUAL "ON")
    message(FATAL_ERROR "The module for NVIDIA GPUs cannot be built: ${ddp_cuda_missing}")
  endif()
  message(STATUS "The module for NVIDIA GPUs is not built: ${ddp_cuda_missing}")
  set(DDP_CUDA_FOUND FALSE)
  return()
endif()
set(DDP_CUDA_FOUND TRUE)
message(STATUS "The module for NVIDIA GPUs is built with CUDA ${CUDAToolkit_VERSION} for ${DDP_CUDA_ARCHITECTURES}")

# For what the program says about GPUs that it has no kernels for. A definition with ';' would be two.
string(REPLACE ";" "," ddp_cuda_architectures_definition "${DDP_CUDA_ARCHITECTURES}")
set(ddp_cuda_architectures_definition DDP_CUDA_ARCHITECTURES="${ddp_cuda_architectures_definition}")

# CMake before 3.26 does not know that nvcc supports C++20.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_COMPILE_FEATURES cuda_std_20)
  list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)

# A register spill is a warning, and warnings are errors.
set(ddp_cuda_warnings
  "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Xptxas -warn-spills>"
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>)
if(CMAKE_COMPILE_WARNING_AS_ERROR)
  list(APPEND ddp_cuda_warnings
    $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings> $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Werror>)
endif()

# ddp_cuda_library(NAME SOURCES a.cu b.cpp ... [TOGETHER c.cu ...] [PUBLIC lib ...] [PRIVATE lib ...]): a ddp_library with .cu
# files. Those after TOGETHER, whose names differ, are one unit with DDP_UNITY: nvcc takes longer for CUDA's headers than for
# most of them.
function(ddp_cuda_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;TOGETHER;PUBLIC;PRIVATE" ${ARGN})
  list(TRANSFORM ARG_TOGETHER PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  set(together ${ARG_TOGETHER})
  if(DDP_UNITY)
    list(TRANSFORM together PREPEND "#include \"" OUTPUT_VARIABLE includes)
    list(TRANSFORM includes APPEND "\"\n")
    list(JOIN includes "" includes)
    set(ARG_TOGETHER ${CMAKE_CURRENT_BINARY_DIR}/together.cu)
    file(CONFIGURE OUTPUT ${ARG_TOGETHER} CONTENT "${includes}" @ONLY)
  endif()
  ddp_library(${name} SOURCES ${ARG_SOURCES} ${ARG_TOGETHER} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
  target_compile_options(ddp_${name} PRIVATE ${ddp_cuda_warnings})
  set_target_properties(ddp_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON DDP_TOGETHER "${together}")
endfunction()
