"""Translate the kernel files into one Cython unit. Used by setup.py; needs nothing but the standard library.

The kernel files (`SOURCES` in src/tether/kernels/compiled.py) are plain Python. All their `@kernel` functions and
`@record` classes go into one unit, so that the C compiler inlines across files and calls between kernels cost nothing:

- annotations become C types, `@record` classes extension types whose arrays are typed views that are made once;
- module constants become literals, `np.sqrt` and its like the C library's functions.

Everything else in those files stays Python, and is not compiled.
"""

import ast
import hashlib
import math
from pathlib import Path

PACKAGE = Path(__file__).parent / "src" / "tether"

TYPES = {
    "float": "double",
    "int": "Py_ssize_t",
    "bool": "bint",
    "Vector": "double[::1]",
    "Matrix": "double[:, ::1]",
    "Cube": "double[:, :, ::1]",
    "Integers": "Py_ssize_t[::1]",
    "IntegerMatrix": "Py_ssize_t[:, ::1]",
    "None": "void",
}
"""What an annotation of the sources is in C; the names of records stay as they are."""

ARRAYS = {
    "Vector": ("float", 1),
    "Matrix": ("float", 2),
    "Cube": ("float", 3),
    "Integers": ("int", 1),
    "IntegerMatrix": ("int", 2),
}
NAME_OF = {kind: name for name, kind in ARRAYS.items()}

C_LIBRARY = {"sqrt": "sqrt", "log": "log", "isfinite": "isfinite", "nan": "NAN", "inf": "INFINITY"}
"""What stands for a name of NumPy in compiled code."""

PRELUDE = '''# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: nonecheck=False, infer_types=False, embedsignature=True
"""Made by build_kernels.py from the kernel files: read those instead."""
from libc.math cimport INFINITY, NAN, isfinite, log, sqrt

cdef extern from *:
    """
    #if defined(__x86_64__)
    #include <cpuid.h>
    static int tether_has_avx2(void) {
        unsigned int a, b, c, d, low, high;
        const unsigned int first = 1u << 12 | 1u << 22 | 1u << 27 | 1u << 28 | 1u << 29;
        if (!__get_cpuid(1, &a, &b, &c, &d) || (c & first) != first) return 0;  /* FMA MOVBE OSXSAVE AVX F16C */
        if (!__get_cpuid(0x80000001, &a, &b, &c, &d) || !(c & (1u << 5))) return 0;  /* LZCNT */
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));  /* the system keeps the wide registers */
        if ((low & 6u) != 6u || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
        return (b & (1u << 5)) && (b & (1u << 3)) && (b & (1u << 8));  /* AVX2 BMI1 BMI2 */
    }
    #else
    static int tether_has_avx2(void) { return 0; }
    #endif
    """
    int tether_has_avx2()


def has_avx2():
    """Whether this processor runs x86-64-v3 code."""
    return bool(tether_has_avx2())


def rebuild(cls, fields):
    """A record from its fields, for copies."""
    return cls(**fields)

'''

RECORD = """
    def __init__(self, **fields):
        self.fields = {{name: fields.pop(name) for name in {names}}}
        if fields:
            raise TypeError("{name} has no fields " + str(sorted(fields)))
{assignments}
    def __getattribute__(self, str name):  # first, since to look elsewhere and fail takes ten times as long
        if self.fields is not None and name in self.fields:
            return self.fields[name]
        return object.__getattribute__(self, name)

    def __reduce__(self):
        return rebuild, (type(self), self.fields)
"""


class Unit:
    """What is known while files are translated one by one: constants, fields of records, what kernels return."""

    def __init__(self) -> None:
        self.constants: dict[str, int | float] = {}
        self.records: dict[str, dict[str, str]] = {}
        self.returns: dict[str, str] = {}

    def record(self, node: ast.ClassDef) -> str:
        """An extension type: typed attributes for kernels, and the same objects by name for Python."""
        fields = {s.target.id: ast.unparse(s.annotation) for s in node.body if isinstance(s, ast.AnnAssign)}
        self.records[node.name] = fields
        lines = [f"cdef class {node.name}:", f"    {ast.get_docstring(node)!r}", "    cdef readonly dict fields"]
        lines += [f"    cdef {self.c_type(kind)} {name}" for name, kind in fields.items()]
        assignments = "".join(f"        self.{name} = self.fields[{name!r}]\n" for name in fields)
        return "\n".join(lines) + RECORD.format(names=tuple(fields), name=node.name, assignments=assignments)

    def function(self, node: ast.FunctionDef) -> str:
        """A function that C and Python can call. It raises nothing: what is not finite certifies nothing."""
        arguments = {a.arg: ast.unparse(a.annotation) for a in node.args.args}
        returns = self.returns[node.name] = ast.unparse(node.returns)
        local = Types(self, arguments).of_function(node)
        signature = ", ".join(f"{self.c_type(kind)} {name}" for name, kind in arguments.items())
        body = [Translator(self.constants, {*arguments, *local}).visit(statement) for statement in node.body]
        text = "\n".join(ast.unparse(ast.fix_missing_locations(statement)) for statement in body)
        loops = any(isinstance(inside, ast.For | ast.While) for inside in ast.walk(node))
        lines = [f"cpdef {'' if loops else 'inline '}{self.c_type(returns)} {node.name}({signature}) noexcept:"]
        lines += [f"    cdef {self.c_type(kind)} {name}" for name, kind in local.items()]
        return "\n".join([*lines, *(f"    {line}" for line in text.splitlines())]) + "\n"

    def c_type(self, kind: str) -> str:
        """The C type that an annotation stands for."""
        if kind.startswith("tuple["):
            return "(" + ", ".join(self.c_type(part.strip()) for part in kind[6:-1].split(",")) + ")"
        if kind not in TYPES and kind not in self.records:
            raise SystemExit(f"build_kernels.py: no C type for the annotation {kind!r}")
        return TYPES.get(kind, kind)


class Types:
    """The types of a kernel's local variables, from the types of its arguments: enough for loops over arrays."""

    def __init__(self, unit: Unit, arguments: dict[str, str]) -> None:
        self.unit, self.arguments, self.local = unit, arguments, dict[str, str]()

    def of_function(self, node: ast.FunctionDef) -> dict[str, str]:
        """Locals by name. A variable that is once a number with a fraction is one throughout."""
        for _ in range(2):  # a second look knows what was assigned further down
            for statement in ast.walk(node):
                if isinstance(statement, ast.Assign):
                    for target in statement.targets:
                        self.assign(target, self.of(statement.value))
                elif isinstance(statement, ast.AugAssign):
                    self.assign(statement.target, self.of(ast.BinOp(statement.target, statement.op, statement.value)))
                elif isinstance(statement, ast.For):
                    self.assign(statement.target, "int")
        unknown = [name for name, kind in self.local.items() if kind == "?"]
        if unknown:
            raise SystemExit(f"build_kernels.py: no type for {unknown} in {node.name}")
        return self.local

    def assign(self, target: ast.expr, kind: str) -> None:
        """Note what a name is assigned."""
        if isinstance(target, ast.Tuple):
            parts = kind[6:-1].split(", ") if kind.startswith("tuple[") else ["?"] * len(target.elts)
            for element, part in zip(target.elts, parts, strict=True):
                self.assign(element, part)
        elif isinstance(target, ast.Name) and target.id not in self.arguments:
            self.local[target.id] = self.join(self.local.get(target.id, "?"), kind)

    @staticmethod
    def join(first: str, second: str) -> str:
        """The type that holds both."""
        for kind in (first, second):
            if kind not in ("?", "float", "int", "bool"):
                return kind
        return next((kind for kind in ("float", "int", "bool") if kind in (first, second)), "?")

    def of(self, node: ast.expr) -> str:
        """The type of an expression, "?" while unknown."""
        match node:
            case ast.Constant(value=value):
                return type(value).__name__
            case ast.Name(id=name):
                if name in self.unit.constants and name not in self.local:
                    return type(self.unit.constants[name]).__name__
                return self.arguments.get(name) or self.local.get(name, "?")
            case ast.Attribute(attr="shape"):
                return "shape"
            case ast.Attribute(value=ast.Name(id="np")):
                return "float"
            case ast.Attribute(value=value, attr=attr):
                return self.unit.records.get(self.of(value), {}).get(attr, "?")
            case ast.Subscript(value=value, slice=where):
                base = self.of(value)
                if base == "shape":
                    return "int"
                if base not in ARRAYS:
                    return "?"
                kind, axes = ARRAYS[base]
                index = where.elts if isinstance(where, ast.Tuple) else [where]
                left = axes - sum(not isinstance(part, ast.Slice) for part in index)
                return kind if left == 0 else NAME_OF[kind, left]
            case ast.BinOp(left=left, op=op, right=right):
                return "float" if isinstance(op, ast.Div) else self.join(self.of(left), self.of(right))
            case ast.UnaryOp(op=ast.Not()) | ast.Compare():
                return "bool"
            case ast.UnaryOp(operand=operand):
                return self.of(operand)
            case ast.BoolOp(values=values):
                return self.of(values[0])
            case ast.IfExp(body=body, orelse=orelse):
                return self.join(self.of(body), self.of(orelse))
            case ast.Tuple(elts=elements):
                return "tuple[" + ", ".join(self.of(element) for element in elements) + "]"
            case ast.Call(func=ast.Attribute(attr="isfinite")):
                return "bool"
            case ast.Call(func=ast.Attribute(value=ast.Name(id="np"))):
                return "float"
            case ast.Call(func=ast.Name(id="min" | "max" | "abs"), args=arguments):
                kind = "?"
                for argument in arguments:
                    kind = self.join(kind, self.of(argument))
                return kind
            case ast.Call(func=ast.Name(id=name)):
                return name if name in ("float", "int") else self.unit.returns.get(name, "?")
        return "?"


class Translator(ast.NodeTransformer):
    """The body of one kernel: constants as literals, NumPy's elementary functions as the C library's."""

    def __init__(self, constants: dict[str, int | float], local: set[str]) -> None:
        self.constants, self.local = constants, local

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """A constant becomes its value."""
        if isinstance(node.ctx, ast.Load) and node.id in self.constants and node.id not in self.local:
            return ast.Constant(self.constants[node.id])
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """np.sqrt becomes sqrt."""
        if isinstance(node.value, ast.Name) and node.value.id == "np":
            return ast.Name(C_LIBRARY[node.attr], ast.Load())
        self.generic_visit(node)
        return node


def is_marked(node: ast.stmt, mark: str) -> bool:
    """Whether a definition carries the decorator `mark`."""
    return any(isinstance(d, ast.Name) and d.id == mark for d in getattr(node, "decorator_list", []))


def sources() -> tuple[str, ...]:
    """SOURCES, read without importing the package."""
    tree = ast.parse((PACKAGE / "kernels" / "compiled.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SOURCES":
            return tuple(ast.literal_eval(node.value))
    raise SystemExit("build_kernels.py: kernels/compiled.py has no SOURCES")


def translated() -> str:
    """The whole Cython source."""
    unit, digest = Unit(), hashlib.sha256()
    names: dict[str, list[str]] = {}
    parts, defined = [PRELUDE], set()
    for source in sources():
        text = (PACKAGE / source).read_bytes()
        digest.update(source.encode() + b"\0" + text)
        made = names["tether." + source.removesuffix(".py").replace("/", ".")] = list[str]()
        tree = ast.parse(text)
        for node in tree.body:
            for name, value in evaluated(node, unit.constants).items():
                if name in unit.constants:
                    raise SystemExit(f"build_kernels.py: the constant {name} of {source} is in another kernel file too")
                unit.constants[name] = value
        marked = [n for n in tree.body if is_marked(n, "kernel") or is_marked(n, "record")]
        for node in marked:  # kernels may call those further down
            if isinstance(node, ast.FunctionDef):
                unit.returns[node.name] = ast.unparse(node.returns)
        for node in marked:
            if node.name in defined:
                raise SystemExit(f"build_kernels.py: {node.name} of {source} is defined in another kernel file too")
            defined.add(node.name)
            made.append(node.name)
            parts.append(unit.record(node) if isinstance(node, ast.ClassDef) else unit.function(node))
    parts.append(f"NAMES = {names!r}\nDIGEST = {digest.hexdigest()!r}\n")
    return "\n\n".join(parts)


def evaluated(node: ast.stmt, known: dict[str, int | float]) -> dict[str, int | float]:
    """The numbers that a module-level assignment defines; nothing for anything else."""
    if not isinstance(node, ast.Assign):
        return {}
    try:
        value = eval(  # the project's own sources, at build time
            compile(ast.Expression(node.value), "<constant>", "eval"), {"__builtins__": {}, "math": math, **known}
        )
    except Exception:
        return {}
    target = node.targets[0]
    if isinstance(target, ast.Tuple) and isinstance(value, tuple):
        return {t.id: v for t, v in zip(target.elts, value, strict=True) if isinstance(v, int | float)}
    return {target.id: value} if isinstance(target, ast.Name) and isinstance(value, int | float) else {}


if __name__ == "__main__":
    print(translated())
