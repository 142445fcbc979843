# Device code is compiled where it runs: libheed carries the text of src/kernels. ${embedded_kernels} is the source with it.
file(GLOB_RECURSE kernel_files RELATIVE ${CMAKE_CURRENT_SOURCE_DIR}/kernels CONFIGURE_DEPENDS
     kernels/*.h kernels/*.cuh)
list(SORT kernel_files)
list(TRANSFORM kernel_files PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/kernels/ OUTPUT_VARIABLE kernel_paths)
list(JOIN kernel_files "," kernel_names)
set(embedded_kernels ${CMAKE_CURRENT_BINARY_DIR}/embedded_kernels.cpp)
add_custom_command(
  OUTPUT ${embedded_kernels}
  COMMAND ${CMAKE_COMMAND} -DFOLDER=${CMAKE_CURRENT_SOURCE_DIR}/kernels -DFILES=${kernel_names}
          -DOUTPUT=${embedded_kernels} -P ${PROJECT_SOURCE_DIR}/cmake/Embed.cmake
  DEPENDS ${kernel_paths} ${PROJECT_SOURCE_DIR}/cmake/Embed.cmake
  COMMENT "Embedding the device code"
  VERBATIM)
