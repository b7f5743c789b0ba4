# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""Turns the rules of a schema into C structures, once a schema."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.math cimport INFINITY
from libc.stdint cimport INT64_MAX, INT64_MIN, UINT64_MAX, int32_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from ssop_codec._states cimport NUMBER

from .number import is_integer, to_int64
from .rules import Rule


cdef class Program:
    """The tables of a schema in C; immutable."""

    def __cinit__(self, schema):
        cdef uint32_t number
        self.schema = schema
        self.blocks = []
        self.owned = []
        # One more: the rule of untyped values.
        self.node_count = len(schema.rules)
        self.check_count = len(schema.checks)
        self.nodes = <Node*>calloc(self.node_count + 2 + self.check_count, sizeof(Node))
        self.checks = <Check*>calloc(self.check_count + 1, sizeof(Check))
        if self.nodes is NULL or self.checks is NULL:
            raise MemoryError
        self.rules = [*schema.rules, Rule(), *(check.rule for check in schema.checks), Rule(types=0, declared_types=0)]
        for number in range(<uint32_t>len(self.rules)):
            self._fill(number, self.rules[number])
        for number in range(self.node_count):
            self._count_keys(&self.nodes[number])
        self.patterns = list(schema.patterns.values())
        places = {text: number for number, text in enumerate(schema.patterns)}
        for number in range(self.check_count):
            self.checks[number].node = &self.nodes[self.node_count + 1 + number]
            self._fill_check(number, schema.checks[number], places)
        cdef Check* never = &self.checks[self.check_count]
        never.node = &self.nodes[self.node_count + 1 + self.check_count]
        never.additional = never.items = never.contains = never.names = CHECK_ALWAYS
        never.max_contains = UINT64_MAX
        cdef Node* untyped = &self.nodes[self.node_count]
        untyped.types = untyped.declared_types = 127
        untyped.object_at = untyped.array_at = <int32_t>self.node_count
        untyped.additional = untyped.items = NODE_UNTYPED
        untyped.max_properties = untyped.most_keys = untyped.max_items = untyped.max_length = UINT64_MAX
        untyped.low = -INFINITY
        untyped.high = INFINITY

    def __dealloc__(self):
        free(self.nodes)
        free(self.checks)

    cdef void* _block(self, size_t size) except NULL:
        block = bytearray(max(<Py_ssize_t>size, 1))
        self.blocks.append(block)
        return <void*><char*>block

    cdef Key* _keys(self, list texts) except? NULL:
        """Sorted texts; they are kept alive here."""
        cdef Key* keys = <Key*>self._block(len(texts) * sizeof(Key))
        cdef uint32_t i
        for i in range(<uint32_t>len(texts)):
            text = texts[i]
            self.owned.append(text)
            keys[i].data = <const uint8_t*>PyBytes_AS_STRING(text)
            keys[i].size = <uint32_t>PyBytes_GET_SIZE(text)
            keys[i].is_plain = _is_plain(keys[i].data, keys[i].size)
        return keys

    cdef int _fill(self, uint32_t number, object rule) except -1:
        cdef Node* node = &self.nodes[number]
        cdef uint32_t i, position
        cdef uint64_t one = 1
        node.types = rule.types
        node.declared_types = rule.declared_types
        node.object_at = rule.object_at
        node.array_at = rule.array_at
        if rule.enum_keyword == "const":
            node.flags |= IS_CONST
        if rule.is_double:
            node.flags |= IS_DOUBLE
        if True not in rule.bools:
            node.flags |= NO_TRUE
        if False not in rule.bools:
            node.flags |= NO_FALSE
        # Properties.
        names = list(rule.properties)
        texts = sorted(name.encode() for name in names)
        node.key_count = len(names)
        node.keys = self._keys(texts)
        node.words = (node.key_count + 63) // 64
        self.max_words = max(self.max_words, node.words)
        node.order = <uint32_t*>self._block(node.key_count * sizeof(uint32_t))
        node.required = <uint64_t*>self._block(node.words * sizeof(uint64_t))
        place = {text: i for i, text in enumerate(texts)}
        required = frozenset(rule.required)
        for position, name in enumerate(names):
            i = place[name.encode()]
            node.order[position] = i
            node.keys[i].position = position
            node.keys[i].node = rule.properties[name]
            if name in required:
                node.required[position >> 6] |= one << (position & 63)
        node.additional = rule.additional
        node.min_properties = rule.min_properties
        node.max_properties = UINT64_MAX if rule.max_properties < 0 else rule.max_properties
        node.most_keys = node.max_properties
        # Items.
        node.prefix_count = len(rule.prefix)
        node.prefix = <int32_t*>self._block(node.prefix_count * sizeof(int32_t))
        for i in range(node.prefix_count):
            node.prefix[i] = rule.prefix[i]
        node.items = rule.items
        node.min_items = rule.min_items
        node.max_items = UINT64_MAX if rule.max_items < 0 else rule.max_items
        # Strings.
        node.min_length = rule.min_length
        node.max_length = UINT64_MAX if rule.max_length < 0 else rule.max_length
        if rule.enum_strings is not None:
            node.flags |= ENUM_STRINGS
            node.strings = self._keys(list(rule.enum_strings))
            node.string_count = len(rule.enum_strings)
            for text in rule.enum_strings:
                self.max_member_bytes = max(self.max_member_bytes, <uint32_t>len(text))
        if rule.string_format:
            node.flags |= HAS_FORMAT
        shape = rule.pattern if rule.pattern is not None else rule.shape
        if shape is not None:
            node.flags |= HAS_PATTERN if rule.pattern is not None else HAS_PATTERN | IS_SHAPE
            self.owned.append(shape)
            node.pattern = <void*>shape
        node.root_count = len(rule.roots)
        node.roots = <Root*>self._block(node.root_count * sizeof(Root))
        for i in range(node.root_count):
            node.roots[i].types, node.roots[i].check = rule.roots[i]
        self._fill_number(node, rule)
        return 0

    cdef int _count_keys(self, Node* node) except -1:
        """Where other keys may not stand, no more members than names that can have a value."""
        cdef uint64_t count = 0
        cdef uint32_t i
        for i in range(node.key_count):
            count += self.nodes[node.keys[i].node].types != 0
        if node.additional == NODE_FORBIDDEN:
            node.most_keys = min(node.most_keys, count)
        return 0

    cdef int32_t* _numbers(self, object numbers) except NULL:
        cdef int32_t* block = <int32_t*>self._block(len(numbers) * sizeof(int32_t))
        cdef Py_ssize_t i
        for i in range(len(numbers)):
            block[i] = numbers[i]
        return block

    cdef int _fill_check(self, uint32_t number, object check, dict places) except -1:
        cdef Check* into = &self.checks[number]
        cdef uint32_t i, slot
        into.settled = check.settled
        texts = sorted(check.keys)
        place = {text: i for i, text in enumerate(texts)}
        into.keys = self._keys(texts)
        into.key_count = len(texts)
        into.words = (into.key_count + 63) // 64
        into.key_flags = <uint8_t*>self._block(into.key_count)
        for i in range(into.key_count):
            text = texts[i]
            into.keys[i].position = i
            into.keys[i].node = check.keys[text]
            into.key_flags[i] = (
                (KEY_REQUIRED if text in check.required else 0) | (KEY_PROPERTY if text in check.properties else 0)
            )
        into.required_count = len(check.required)
        into.additional = check.additional
        into.pattern_count = len(check.patterns)
        into.patterns = <uint32_t*>self._numbers([places[text] for text, _ in check.patterns])
        into.pattern_checks = self._numbers([kid for _, kid in check.patterns])
        into.dependent_count = len(check.dependents)
        into.dependents = <Dependent*>self._block(into.dependent_count * sizeof(Dependent))
        for i in range(into.dependent_count):
            key, needed = check.dependents[i]
            into.dependents[i].key = place[key]
            into.dependents[i].needed = <uint32_t*>self._numbers([place[text] for text in needed])
            into.dependents[i].needed_count = len(needed)
        into.prefix_count = len(check.prefix)
        into.prefix = self._numbers(check.prefix)
        into.items = check.items
        into.contains = check.contains
        into.min_contains = check.min_contains
        into.max_contains = UINT64_MAX if check.max_contains < 0 else check.max_contains
        into.names = check.names
        into.is_unique = check.is_unique
        into.has_members = check.members is not None
        kids = [kid for group in check.groups for kid in group.kids]
        into.kid_count = len(kids)
        into.kids = self._numbers(kids)
        into.group_count = len(check.groups)
        into.groups = <Group*>self._block(into.group_count * sizeof(Group))
        slot = 0
        for i in range(into.group_count):
            group = check.groups[i]
            into.groups[i].kind = ("all", "any", "one", "not", "if", "when").index(group.kind)
            into.groups[i].first = slot
            into.groups[i].count = len(group.kids)
            into.groups[i].key = place.get(group.key, 0)
            slot += into.groups[i].count
        return 0

    cdef int _fill_number(self, Node* node, object rule) except -1:
        if rule.is_strict and not rule.types & NUMBER:
            node.flags |= IS_STRICT
        if rule.enum_numbers is not None:
            node.flags |= ENUM_NUMBERS
        bounds = (rule.minimum, rule.maximum, rule.exclusive_minimum, rule.exclusive_maximum)
        given = [bound for bound in bounds if bound is not None]
        if given:
            node.flags |= HAS_BOUNDS
        if bounds[2] is not None:
            node.flags |= HAS_ABOVE
        if bounds[3] is not None:
            node.flags |= HAS_BELOW
        if rule.multiple_of is not None:
            node.flags |= HAS_MULTIPLE
            given.append(rule.multiple_of)
        if all(is_integer(bound) and to_int64(bound) is not None for bound in given):
            node.flags |= INT_BOUNDS
            node.minimum = INT64_MIN if bounds[0] is None else to_int64(bounds[0])
            node.maximum = INT64_MAX if bounds[1] is None else to_int64(bounds[1])
            node.exclusive_minimum = 0 if bounds[2] is None else to_int64(bounds[2])
            node.exclusive_maximum = 0 if bounds[3] is None else to_int64(bounds[3])
            node.multiple_of = 1 if rule.multiple_of is None else to_int64(rule.multiple_of)
        node.low = -INFINITY
        node.high = INFINITY
        for bound in (bounds[0], bounds[2]):
            if bound is not None:
                node.low = max(node.low, _double(bound))
        for bound in (bounds[1], bounds[3]):
            if bound is not None:
                node.high = min(node.high, _double(bound))
        return 0


cdef bint _is_plain(const uint8_t* data, uint32_t size) noexcept:
    cdef uint32_t i
    for i in range(size):
        if data[i] < 0x20 or data[i] == 0x22 or data[i] == 0x5C:
            return False
    return True


cdef double _double(object number) except? -1:
    return float(f"{number[0]}e{number[1]}")


def program_of(schema):
    """The program of a schema, made at its first use."""
    program = schema.cache.get("program")
    if program is None:
        # Two threads may both come here; the later one wins and both programs are right.
        program = schema.cache["program"] = Program(schema)
    return program
