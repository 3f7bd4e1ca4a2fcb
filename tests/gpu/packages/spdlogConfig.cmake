# spdlog from its headers alone, for a prefix of dependencies without its library. DDP_KIT is the prefix.
add_library(spdlog::spdlog INTERFACE IMPORTED)
set_target_properties(spdlog::spdlog PROPERTIES
  INTERFACE_INCLUDE_DIRECTORIES ${DDP_KIT}/include
  INTERFACE_COMPILE_DEFINITIONS SPDLOG_FMT_EXTERNAL
  INTERFACE_LINK_LIBRARIES fmt::fmt)
