/* stepper.c: runs the calls it is sent on standard input and answers on standard output, so that the
 * Python tests of native/ also run where Python does not (another CPU under an emulator). Little-endian
 * numbers; tests/native/remote.py is the other end.
 *
 *   'n'                                     -> names of the operations, then of the ISAs: text, spaces
 *   'i' length text                         -> status of cdl_isa_set
 *   't' count                               -> status of cdl_threads_set
 *   's' op views regions params
 *       region: bytes (u64), contents       each in memory of its own length
 *       view: region (i32, -1: null), offset (i64), cdl_layout
 *                                           -> status, then the contents of every region
 */
#include "../include/candle.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 16 };

static void get(void *to, size_t n) {
    if (n && fread(to, 1, n, stdin) != n) exit(1); /* the other end has gone */
}
static int32_t get_int(void) {
    int32_t x;
    get(&x, sizeof x);
    return x;
}
static void put(const void *from, size_t n) {
    if (n && fwrite(from, 1, n, stdout) != n) exit(1);
}
static void put_int(int32_t x) { put(&x, sizeof x); }

static void names(void) {
    char text[4096] = "";
    for (int32_t i = 0; i < cdl_op_count(); i++) {
        strncat(text, cdl_op_name(i), sizeof text - strlen(text) - 1);
        strncat(text, i + 1 < cdl_op_count() ? " " : "\n", sizeof text - strlen(text) - 1);
    }
    strncat(text, cdl_isa_list(), sizeof text - strlen(text) - 1);
    put_int((int32_t)strlen(text));
    put(text, strlen(text));
}

static void step(void) {
    const int32_t op = get_int(), views = get_int(), regions = get_int();
    static cdl_layout layout[MOST];
    cdl_params params;
    cdl_view view[MOST];
    char *memory[MOST];
    uint64_t bytes[MOST];
    if (views < 0 || views > MOST || regions < 0 || regions > MOST) exit(1);
    get(&params, sizeof params);
    for (int32_t i = 0; i < regions; i++) {
        get(&bytes[i], sizeof bytes[i]);
        memory[i] = malloc(bytes[i] ? bytes[i] : 1); /* exact, so that a sanitiser sees the ends */
        if (!memory[i]) exit(1);
        get(memory[i], bytes[i]);
    }
    for (int32_t i = 0; i < views; i++) {
        const int32_t region = get_int();
        int64_t offset;
        get(&offset, sizeof offset);
        get(&layout[i], sizeof layout[i]);
        view[i].data = region < 0 ? NULL : memory[region] + offset;
        view[i].layout = &layout[i];
    }
    put_int(cdl_step(op, view, views, &params));
    for (int32_t i = 0; i < regions; i++) {
        put(memory[i], bytes[i]);
        free(memory[i]);
    }
}

int main(void) {
    for (int command; (command = getchar()) != EOF; fflush(stdout)) {
        char text[64] = "";
        if (command == 'n') {
            names();
        } else if (command == 'i') {
            const int32_t n = get_int();
            if (n < 0 || n >= (int32_t)sizeof text) return 1;
            get(text, (size_t)n);
            put_int(cdl_isa_set(text));
        } else if (command == 't') {
            put_int(cdl_threads_set(get_int()));
        } else if (command == 's') {
            step();
        } else {
            return 1;
        }
    }
    return 0;
}
