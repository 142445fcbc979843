# How everything of heed is compiled. Nothing here reaches users of heed::heed, nor the project that includes us.

if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
  set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release)
  endif()
  find_program(CCACHE ccache)
  if(CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
    set(launcher ${CCACHE})
    if(HEED_INSTRUMENTED)
      # Only then does it take files with precompiled headers.
      list(PREPEND launcher ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros)
    endif()
    set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
    set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  endif()
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS OFF)

add_compile_options(-Wall -Wextra -Wpedantic -Wshadow "$<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor;-Woverloaded-virtual>")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # gcc 12 sees faults inside libstdc++ that are not there: in std::string's operator+ and in std::sort of a short array.
  add_compile_options(-Wno-restrict -Wno-array-bounds)
endif()
if(HEED_WERROR)
  add_compile_options(-Werror)
endif()

if(HEED_SANITIZE)
  # The first finding ends the program, so that a test cannot pass with one.
  add_compile_options(-fsanitize=${HEED_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${HEED_SANITIZE})
endif()
if(HEED_COVERAGE)
  add_compile_options(--coverage)
  add_link_options(--coverage)
endif()

# heed_sources(<variable> <pattern>...): the sources that match; a new file is picked up by the next build.
function(heed_sources variable)
  file(GLOB found CONFIGURE_DEPENDS ${ARGN})
  set(${variable} ${found} PARENT_SCOPE)
endfunction()

# heed_precompile(<target> <header>): where files are compiled unoptimised, most of the time goes into reading the same
# headers. Not in release builds, which show that every file includes what it uses.
function(heed_precompile target header)
  if(HEED_INSTRUMENTED)
    target_precompile_headers(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${PROJECT_SOURCE_DIR}/${header}>)
  endif()
endfunction()
