# cython: language_level=3
"""One user at a time: who comes while another thread is inside gets an error and not a broken stream.

With the interpreter's lock a plain flag does; without it the flag is exchanged atomically.
"""

cdef extern from *:
    """
    #ifdef Py_GIL_DISABLED
    static inline int ssop_claim(int *flag) { return !__atomic_exchange_n(flag, 1, __ATOMIC_ACQUIRE); }
    static inline void ssop_yield(int *flag) { __atomic_store_n(flag, 0, __ATOMIC_RELEASE); }
    #else
    static inline int ssop_claim(int *flag) { return *flag ? 0 : (*flag = 1); }
    static inline void ssop_yield(int *flag) { *flag = 0; }
    #endif
    """
    bint ssop_claim(int* flag) nogil
    void ssop_yield(int* flag) nogil
