package main

import (
	"go/types"
	"slices"
	"strings"
)

// hidden finds types in an API that a program outside of the module cannot name.
type hidden struct {
	public map[*types.TypeName]bool // types with an exported name in a public package, also by an alias
	found  []string
}

// hiddenTypes returns the exported constants, variables, functions, methods and fields of the
// packages in folders whose type mentions a type of this module that has no exported name in
// any of them, and the aliases of internal types, whose methods and fields go doc does not
// show. Lines are sorted.
func (l *loader) hiddenTypes(folders []string) ([]string, error) {
	h := hidden{public: map[*types.TypeName]bool{}}
	var exported []types.Object
	for _, folder := range folders {
		p, err := l.Import(importPath(folder))
		if err != nil {
			return nil, err
		}
		for _, name := range p.Scope().Names() {
			if o := p.Scope().Lookup(name); o.Exported() {
				exported = append(exported, o)
			}
		}
	}
	for _, o := range exported {
		if _, isType := o.(*types.TypeName); isType {
			if named, ok := types.Unalias(o.Type()).(*types.Named); ok {
				h.public[named.Origin().Obj()] = true
			}
		}
	}
	for _, o := range exported {
		h.object(o)
	}
	slices.Sort(h.found)
	return slices.Compact(h.found), nil
}

// object looks at an exported name of a package; at a type's fields and methods, too.
func (h *hidden) object(o types.Object) {
	name := strings.TrimPrefix(strings.TrimPrefix(o.Pkg().Path(), module), "/") + "." + o.Name()
	if _, isType := o.(*types.TypeName); !isType {
		h.mentions(name, o.Type())
		return
	}
	named, ok := types.Unalias(o.Type()).(*types.Named)
	if !ok {
		h.mentions(name, o.Type())
		return
	}
	if inside := typeName(named); strings.Contains(inside, "internal/") {
		h.found = append(h.found, name+" is an alias of "+inside)
	}
	h.members(name, named, map[*types.Named]bool{})
}

// typeName returns the name of a type with its folder.
func typeName(t *types.Named) string {
	return strings.TrimPrefix(t.Obj().Pkg().Path(), module+"/") + "." + t.Obj().Name()
}

// members looks at what programs can select in a value of a type, by embedding, too.
func (h *hidden) members(name string, t *types.Named, seen map[*types.Named]bool) {
	if seen[t] {
		return
	}
	seen[t] = true
	for m := range t.Methods() {
		if m.Exported() {
			h.mentions(name+"."+m.Name(), m.Signature())
		}
	}
	s, ok := t.Underlying().(*types.Struct)
	if !ok {
		h.mentions(name, t.Underlying())
		return
	}
	for f := range s.Fields() {
		if f.Exported() {
			h.mentions(name+"."+f.Name(), f.Type())
		}
		if embedded := namedOf(f.Type()); f.Embedded() && embedded != nil {
			h.members(name, embedded, seen)
		}
	}
}

// namedOf returns the defined type that t is or points to; nil if there is none.
func namedOf(t types.Type) *types.Named {
	if p, ok := types.Unalias(t).(*types.Pointer); ok {
		t = p.Elem()
	}
	named, _ := types.Unalias(t).(*types.Named)
	return named
}

// mentions looks for hidden types in t.
func (h *hidden) mentions(name string, t types.Type) {
	switch t := types.Unalias(t).(type) {
	case *types.Named:
		o := t.Obj()
		if o.Pkg() != nil && strings.HasPrefix(o.Pkg().Path()+"/", module+"/") && !h.public[t.Origin().Obj()] {
			h.found = append(h.found, name+" uses "+typeName(t))
		}
		for a := range t.TypeArgs().Types() {
			h.mentions(name, a)
		}
	case *types.Signature:
		h.mentions(name, t.Params())
		h.mentions(name, t.Results())
	case *types.Tuple:
		for v := range t.Variables() {
			h.mentions(name, v.Type())
		}
	case *types.Struct:
		for f := range t.Fields() {
			if f.Exported() {
				h.mentions(name+"."+f.Name(), f.Type())
			}
		}
	case *types.Interface:
		for m := range t.Methods() {
			if m.Exported() {
				h.mentions(name+"."+m.Name(), m.Signature())
			}
		}
	case *types.Map:
		h.mentions(name, t.Key())
		h.mentions(name, t.Elem())
	case interface{ Elem() types.Type }: // pointers, slices, arrays, channels
		h.mentions(name, t.Elem())
	}
}
