#ifndef HEED_EXPORT_H
#define HEED_EXPORT_H

/* HEED_API marks what libheed exports. Everything else is compiled with hidden visibility. */
#define HEED_API __attribute__((visibility("default")))

#endif
