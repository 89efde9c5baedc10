/* port.h: the hooks between the library and what it runs on: memory, environment, threads. */
#ifndef CDL_PORT_H
#define CDL_PORT_H
#include "../base/base.h"

/* Aligned to 64 bytes, or NULL. */
void *cdl_port_alloc(uint64_t bytes);
void cdl_port_free(void *memory);

/* NULL where there is no such variable, or no environment. */
const char *cdl_port_getenv(const char *name);

/* Processors this process may use, at least 1. */
int32_t cdl_port_cpus(void);
#endif
