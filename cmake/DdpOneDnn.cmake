# What of oneDNN serves: 2.6 to 3.x, with the threads of OpenMP, which are those that ddp_train gives to a rank.
if(dnnl_VERSION VERSION_LESS 2.6 OR dnnl_VERSION VERSION_GREATER_EQUAL 4)
  message(FATAL_ERROR "oneDNN ${dnnl_VERSION} in ${dnnl_DIR}: ddp_train needs 2.6 or newer, and older than 4")
endif()
if(DEFINED DNNL_CPU_RUNTIME AND NOT DNNL_CPU_RUNTIME MATCHES "^(OMP|SEQ)$")
  message(FATAL_ERROR "oneDNN ${dnnl_VERSION} in ${dnnl_DIR} computes with ${DNNL_CPU_RUNTIME}; ddp_train needs one built "
    "for OpenMP (conda: onednn=*=omp*, Spack: onednn cpu_runtime=omp). Install it, or name its folder in -Ddnnl_DIR=")
endif()
