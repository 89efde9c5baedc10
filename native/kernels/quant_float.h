/* quant_float.h: products with blocks in f32 throughout. */
#ifndef CDL_QUANT_FLOAT_H
#define CDL_QUANT_FLOAT_H
#include "quant_io.h"

/* out = act(x W^T + bias) of checked views, m and n above zero; x is not quantised. */
cdl_status CDL_NAME(cdl_linear_block_float)(const q_io *io);
#endif
