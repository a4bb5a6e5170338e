# cmake -DSOURCES=a;b -DOUTPUT=build_id.h -DVERSION=x.y.z -P build_id.cmake
set(hashes "")
foreach(source IN LISTS SOURCES)
  file(SHA256 ${source} hash)
  string(APPEND hashes ${hash})
endforeach()
string(SHA256 hash "${hashes}")
string(SUBSTRING ${hash} 0 16 hash)
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[
#pragma once
#define KILN_VERSION "@VERSION@"
#define KILN_BUILD_ID "@hash@"
]] @ONLY)
