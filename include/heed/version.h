#ifndef HEED_VERSION_H
#define HEED_VERSION_H

/* The one place that holds the version: the build, heed.pc and heedConfig.cmake read it from here. */
#define HEED_VERSION_MAJOR 0
#define HEED_VERSION_MINOR 1
#define HEED_VERSION_PATCH 0

#define HEED_VERSION_TEXT_(x) #x
#define HEED_VERSION_JOIN_(major, minor, patch) \
  HEED_VERSION_TEXT_(major) "." HEED_VERSION_TEXT_(minor) "." HEED_VERSION_TEXT_(patch)
/* "0.1.0" */
#define HEED_VERSION_STRING HEED_VERSION_JOIN_(HEED_VERSION_MAJOR, HEED_VERSION_MINOR, HEED_VERSION_PATCH)

#endif
