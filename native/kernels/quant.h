/* quant.h: block formats. The layouts are GGUF's (see docs/reference); one arithmetic for all
 * quantised products: x is quantised to int8 in blocks of 32 with an f32 scale, the product of a
 * block is exact in int32, and blocks are added in f32 in block order per output, alike in the vector
 * and matrix kernels, so the batch and the number of threads never change a bit. */
#ifndef CDL_QUANT_H
#define CDL_QUANT_H
#include "kernel.h"

/* k values of one row of blocks, k a whole number of blocks. CDL_EDTYPE for other dtypes. */
cdl_status CDL_NAME(cdl_dequant_row)(int32_t dtype, const void *row, float *out, int64_t k);

/* The views of `linear` for a block weight other than f32x16; all checks on sizes are done. */
cdl_status CDL_NAME(cdl_linear_block)(const cdl_view *v, int32_t n, const cdl_params *p);
#endif
