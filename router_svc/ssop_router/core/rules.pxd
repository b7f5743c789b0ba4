cpdef bint _joins(str char)


cpdef make_excerpt(str text)
