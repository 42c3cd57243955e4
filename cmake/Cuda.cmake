# Enables CUDA when it is wanted and there, and sets
#   tempo_cuda          ON | OFF: whether .cu files belong to the build
#   TEMPO_CUDA_VERSION  the compiler's version, or "none"
# The compiler is the one of TEMPO_CUDA_HOME, else that of the Python environment which Torch.cmake found; never one that
# happens to be on PATH, because its version must be LibTorch's. A target with .cu files links CUDA::cudart.
set(TEMPO_CUDA AUTO CACHE STRING "Build the CUDA kernels: AUTO (where a CUDA compiler is found), ON or OFF")
set_property(CACHE TEMPO_CUDA PROPERTY STRINGS AUTO ON OFF)
set(TEMPO_CUDA_HOME "$ENV{TEMPO_CUDA_HOME}" CACHE PATH "A CUDA 13 tool kit to use instead of the environment's")
set(TEMPO_CUDA_ARCHITECTURES "80;90" CACHE STRING "Compute capabilities to compile for, as in CMAKE_CUDA_ARCHITECTURES")

set(tempo_cuda OFF)
set(TEMPO_CUDA_VERSION none)
if(NOT TEMPO_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "TEMPO_CUDA is '${TEMPO_CUDA}'; allowed are AUTO, ON and OFF.")
elseif(TEMPO_CUDA STREQUAL OFF)
  set(reason "TEMPO_CUDA is OFF")
elseif(NOT EXISTS "${torch_root}/lib/libtorch_cuda.so")
  set(reason "this LibTorch has no CUDA")
else()
  if(TEMPO_CUDA_HOME)
    set(cuda_home "${TEMPO_CUDA_HOME}")
  else()
    set(cuda_home "${tempo_site_packages}/nvidia/cu13")
  endif()
  # lib64 is among scripts/bootstrap.sh's links; without them the wheel's compiler cannot link.
  if(EXISTS "${cuda_home}/bin/nvcc" AND EXISTS "${cuda_home}/lib64")
    set(tempo_cuda ON)
  else()
    set(reason "${cuda_home} has no bin/nvcc or no lib64")
  endif()
endif()
if(NOT tempo_cuda)
  if(TEMPO_CUDA STREQUAL ON OR (TEMPO_CUDA STREQUAL AUTO AND TEMPO_CUDA_HOME))
    message(FATAL_ERROR "CUDA was asked for, but ${reason}. Run scripts/bootstrap.sh and leave TEMPO_CUDA_HOME empty, or "
                        "name a CUDA 13 tool kit with -DTEMPO_CUDA_HOME=DIR.")
  endif()
  message(STATUS "CUDA: off (${reason})")
  return()
endif()

# Another compiler than last time (the environment was made anew): CMake has to look at it again.
set(detected "${CMAKE_BINARY_DIR}/CMakeFiles/${CMAKE_VERSION}/CMakeCUDACompiler.cmake")
if(DEFINED CACHE{CMAKE_CUDA_COMPILER} AND NOT "$CACHE{CMAKE_CUDA_COMPILER}" STREQUAL "${cuda_home}/bin/nvcc")
  file(REMOVE "${detected}")
endif()
set(CMAKE_CUDA_COMPILER "${cuda_home}/bin/nvcc" CACHE FILEPATH "CUDA compiler" FORCE)
set(CMAKE_CUDA_HOST_COMPILER "${CMAKE_CXX_COMPILER}")
set(CMAKE_CUDA_ARCHITECTURES "${TEMPO_CUDA_ARCHITECTURES}")
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)  # LibTorch's own; a second, static one would have its own current device
enable_language(CUDA)

# Not find_package(CUDAToolkit): CMake 3.25.1's stops on a tool kit without nvToolsExt, which CUDA 13 no longer has.
add_library(CUDA::cudart SHARED IMPORTED)
set_target_properties(CUDA::cudart PROPERTIES IMPORTED_LOCATION "${cuda_home}/lib64/libcudart.so")
target_include_directories(CUDA::cudart SYSTEM INTERFACE "${cuda_home}/include")

# Fused multiply-adds are written as fma() and never made by the compiler, as on the CPU.
string(APPEND CMAKE_CUDA_FLAGS " -fmad=false -Xcompiler=-ffp-contract=off")

set(TEMPO_CUDA_VERSION "${CMAKE_CUDA_COMPILER_VERSION}")
if(NOT TEMPO_CUDA_VERSION MATCHES "^13\\.")
  message(FATAL_ERROR "${CMAKE_CUDA_COMPILER} is CUDA ${TEMPO_CUDA_VERSION}; this LibTorch needs CUDA 13.")
endif()
message(STATUS "CUDA ${TEMPO_CUDA_VERSION}: ${cuda_home}, for ${TEMPO_CUDA_ARCHITECTURES}")
