# Checks oneDNN: versions 2.6 to 3.x with the OpenMP runtime, whose threads ddp_train assigns to ranks.
if(dnnl_VERSION VERSION_LESS 2.6 OR dnnl_VERSION VERSION_GREATER_EQUAL 4)
  message(FATAL_ERROR "oneDNN ${dnnl_VERSION} in ${dnnl_DIR}: ddp_train requires a version from 2.6 to 3.x")
endif()
if(DEFINED DNNL_CPU_RUNTIME AND NOT DNNL_CPU_RUNTIME MATCHES "^(OMP|SEQ)$")
  message(FATAL_ERROR "oneDNN ${dnnl_VERSION} in ${dnnl_DIR} uses the runtime ${DNNL_CPU_RUNTIME}; ddp_train requires one built "
    "for OpenMP (conda: onednn=*=omp*, Spack: onednn cpu_runtime=omp). Install it, or set its folder with -Ddnnl_DIR=")
endif()
