# What libheed carries as text. ${embedded_kernels} are the sources with it.
#   src/kernels       device code, which is compiled where it runs
#   src/cuda/tuning   the shipped tuning records
function(heed_embed folder patterns function output)
  list(TRANSFORM patterns PREPEND ${folder}/)
  file(GLOB_RECURSE files RELATIVE ${CMAKE_CURRENT_SOURCE_DIR}/${folder} CONFIGURE_DEPENDS ${patterns})
  list(SORT files)
  list(TRANSFORM files PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/ OUTPUT_VARIABLE paths)
  list(JOIN files "," names)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DFOLDER=${CMAKE_CURRENT_SOURCE_DIR}/${folder} -DFILES=${names} -DFUNCTION=${function}
            -DOUTPUT=${output} -P ${PROJECT_SOURCE_DIR}/cmake/Embed.cmake
    DEPENDS ${paths} ${PROJECT_SOURCE_DIR}/cmake/Embed.cmake
    COMMENT "Embedding src/${folder}"
    VERBATIM)
endfunction()

set(embedded_kernels ${CMAKE_CURRENT_BINARY_DIR}/embedded_kernels.cpp ${CMAKE_CURRENT_BINARY_DIR}/embedded_tuning.cpp)
heed_embed(kernels "*.h;*.cuh" embedded_sources ${CMAKE_CURRENT_BINARY_DIR}/embedded_kernels.cpp)
heed_embed(cuda/tuning "*.json" embedded_tuning ${CMAKE_CURRENT_BINARY_DIR}/embedded_tuning.cpp)
