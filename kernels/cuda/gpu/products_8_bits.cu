#include "kernels/cuda/gpu/products.cuh"

OUTRIDER_PRODUCTS(q6_k);
OUTRIDER_PRODUCTS(q8_0);
