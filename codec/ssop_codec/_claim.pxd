# cython: language_level=3
"""One user at a time: of a stream, where the second one gets an error, and of what streams share, where it waits.

With the interpreter's lock a plain flag does, and what streams share needs none; without it the flag is exchanged
atomically, and a mutex keeps others out.
"""

cdef extern from *:
    """
    #ifdef Py_GIL_DISABLED
    static inline int ssop_claim(int *flag) { return !__atomic_exchange_n(flag, 1, __ATOMIC_ACQUIRE); }
    static inline void ssop_yield(int *flag) { __atomic_store_n(flag, 0, __ATOMIC_RELEASE); }
    typedef PyMutex ssop_mutex;
    static inline void ssop_lock(ssop_mutex *mutex) { PyMutex_Lock(mutex); }
    static inline void ssop_unlock(ssop_mutex *mutex) { PyMutex_Unlock(mutex); }
    #else
    static inline int ssop_claim(int *flag) { return *flag ? 0 : (*flag = 1); }
    static inline void ssop_yield(int *flag) { *flag = 0; }
    typedef char ssop_mutex;
    static inline void ssop_lock(ssop_mutex *mutex) { (void)mutex; }
    static inline void ssop_unlock(ssop_mutex *mutex) { (void)mutex; }
    #endif
    """
    ctypedef char ssop_mutex
    void ssop_lock(ssop_mutex* mutex)
    void ssop_unlock(ssop_mutex* mutex)
    bint ssop_claim(int* flag) nogil
    void ssop_yield(int* flag) nogil
