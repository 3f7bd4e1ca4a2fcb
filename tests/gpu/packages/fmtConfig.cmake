# fmt from its headers alone, for a prefix of dependencies without its library. DDP_KIT is the prefix.
add_library(fmt::fmt INTERFACE IMPORTED)
set_target_properties(fmt::fmt PROPERTIES
  INTERFACE_INCLUDE_DIRECTORIES ${DDP_KIT}/include INTERFACE_COMPILE_DEFINITIONS FMT_HEADER_ONLY)
