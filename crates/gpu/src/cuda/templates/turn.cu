// The transpose of a matrix of bytes, `rows` of `cols`, both multiples of 16: a block reads 128 rows of 64 bytes and writes 64 of 128.
#ifndef TENSORLOOM_TURN
#define TENSORLOOM_TURN

// Where word c of a row stands: lanes that read 4 rows each find their words in different banks.
D i32 turn_place(i32 row, i32 c) { return (row ^ (row >> 6 & 1)) * 16 + (c ^ (row / 4 & 15)); }

D void turn_block(const u8* from, u8* to, u32* tile, i64 rows, i64 cols) {
    const i64 down = (rows + 127) / 128, r0 = (i64)blockIdx.x % down * 128, c0 = (i64)blockIdx.x / down * 64;
#pragma unroll
    for (i32 i = 0; i < 2; i++) {
        const i32 at = i * 256 + (i32)threadIdx.x, row = at / 4, piece = at % 4;
        if (r0 + row < rows && c0 + piece * 16 < cols) {
            const Vec<u32, 4> v = *(const Vec<u32, 4>*)(from + (r0 + row) * cols + c0 + piece * 16);
#pragma unroll
            for (i32 j = 0; j < 4; j++) tile[turn_place(row, piece * 4 + j)] = v.at[j];
        }
    }
    __syncthreads();
    const i32 lane = (i32)threadIdx.x % 32;
#pragma unroll
    for (i32 i = 0; i < 2; i++) {
        const i32 c = (i32)threadIdx.x / 32 + 8 * i;
        if (r0 + 4 * lane >= rows || c0 + 4 * c >= cols) continue;
        u32 w[4];
#pragma unroll
        for (i32 j = 0; j < 4; j++) w[j] = tile[turn_place(4 * lane + j, c)];
#pragma unroll
        for (i32 j = 0; j < 4; j++) {
            const u32 word = (w[0] >> 8 * j & 255) | (w[1] >> 8 * j & 255) << 8 | (w[2] >> 8 * j & 255) << 16 | (w[3] >> 8 * j & 255) << 24;
            *(u32*)(to + (c0 + 4 * c + j) * rows + r0 + 4 * lane) = word;
        }
    }
}

#endif
