# Writes the files of a folder into one C++ source, as it is compiled into libheed. FUNCTION, of cuda/embedded.hpp, has them:
#   cmake -DFOLDER=<src/kernels> -DFILES=<a.h,b.cuh> -DFUNCTION=<name> -DOUTPUT=<file.cpp> -P Embed.cmake
string(REPLACE "," ";" files "${FILES}")

set(rows "")
foreach(name IN LISTS files)
  file(READ ${FOLDER}/${name} text)
  string(APPEND rows "    {\"${name}\"sv, R\"embedded(${text})embedded\"sv},\n")
endforeach()

file(WRITE ${OUTPUT} "// Written by cmake/Embed.cmake.
#include \"cuda/embedded.hpp\"

namespace heed::cuda {
namespace {

using namespace std::string_view_literals;  // whose lengths nobody has to count: clang counts to a million

constexpr SourceFile kFiles[] = {
${rows}};

}  // namespace

std::span<const SourceFile> ${FUNCTION}() { return kFiles; }

}  // namespace heed::cuda
")
