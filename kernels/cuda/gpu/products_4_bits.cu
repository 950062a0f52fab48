#include "kernels/cuda/gpu/products.cuh"

OUTRIDER_PRODUCTS(q4_0);
OUTRIDER_PRODUCTS(q4_1);
OUTRIDER_PRODUCTS(q4_k);
