# GCC 12 sees uninitialised std::string members of aggregates where there are none: that warning is off.
# The warnings every target of ours is compiled with; the development presets turn them into errors.
option(TEMPO_WERROR "Treat warnings as errors" OFF)
add_library(tempo_warnings INTERFACE)
target_compile_options(tempo_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;-Wnon-virtual-dtor;-Woverloaded-virtual;-Wno-unknown-pragmas;-Wno-maybe-uninitialized>)
if(TEMPO_WERROR)
  target_compile_options(tempo_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror> $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
endif()
