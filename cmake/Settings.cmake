# How everything of heed is compiled. Nothing here reaches users of heed::heed, nor the project that includes us.

if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
  set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release)
  endif()
  # Not in instrumented builds, whose headers are precompiled: ccache tells those apart by their preprocessed text, and so
  # hands out one of before a comment was changed; gcc tells files apart by their bytes, and reads such a header again.
  find_program(CCACHE ccache)
  if(CCACHE AND NOT HEED_INSTRUMENTED AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
  endif()
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS OFF)

# Whether there are the instruction sets of cmake/Isa.cmake.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
  set(HEED_X86 1)
else()
  set(HEED_X86 0)
endif()

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

# heed_unity(<target> [<property> <value>...]): its files are compiled several at a time, as one, because most of the time
# for a small file goes into headers that its neighbours include too. So what two of its files define must have two names,
# also in unnamed namespaces; a file that has to have its own way is marked SKIP_UNITY_BUILD_INCLUSION. In release builds
# that is for tests alone: what users get is compiled file by file, which shows that each includes what it uses, and whose
# objects the wheel of the Python package can begin with.
function(heed_unity target)
  set(files 6)
  if(HEED_INSTRUMENTED)
    set(files 12)  # nobody waits for them after each change
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${files} ${ARGN})
  # gcc takes a class with unnamed members in an included file for one in a header.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endfunction()
