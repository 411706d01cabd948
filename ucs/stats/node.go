package stats

import (
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
)

// Node is an object in the tree: a name, counters, histograms, and objects below it. Its
// methods are for the control path; any goroutine may call them.
type Node struct {
	name string
	tree *sync.Mutex // of the whole tree

	counters   []namedCounter
	histograms []namedHistogram
	children   []*Node
	parent     *Node
}

type namedCounter struct {
	name    string
	counter *Counter
}

// New returns the root of a tree.
func New(name string) *Node { return &Node{name: name, tree: new(sync.Mutex)} }

// Name is the name, unique among the children of its parent.
func (n *Node) Name() string { return n.name }

// Child adds a node below n. If n has a child of that name already, the new one is
// called name#2, or by the next number that is free.
func (n *Node) Child(name string) *Node {
	n.tree.Lock()
	defer n.tree.Unlock()
	unique := name
	for i := 2; n.find(unique) != nil; i++ {
		unique = fmt.Sprintf("%s#%d", name, i)
	}
	c := &Node{name: unique, tree: n.tree, parent: n}
	at, _ := slices.BinarySearchFunc(n.children, unique, byName)
	n.children = slices.Insert(n.children, at, c)
	return c
}

// Add puts a counter under a name, which must be new in n. The node refers to the
// counter until it is removed. Children and counters may share a name.
func (n *Node) Add(name string, c *Counter) {
	n.tree.Lock()
	defer n.tree.Unlock()
	n.counters = append(n.counters, namedCounter{name, c})
}

// Remove takes n and what is below it out of the tree, when its object ends. It
// does nothing a second time, and for a root.
func (n *Node) Remove() {
	n.tree.Lock()
	defer n.tree.Unlock()
	if n.parent == nil {
		return
	}
	n.parent.children = slices.DeleteFunc(n.parent.children, func(c *Node) bool { return c == n })
	n.parent = nil
}

// find is the child of that name; nil if there is none. The tree is locked.
func (n *Node) find(name string) *Node {
	at, found := slices.BinarySearchFunc(n.children, name, byName)
	if !found {
		return nil
	}
	return n.children[at]
}

// byName is the order of children.
func byName(c *Node, name string) int { return strings.Compare(c.name, name) }

// Value is a counter in a snapshot.
type Value struct {
	Name string `json:"name"`
	N    uint64 `json:"n"`
}

// Snapshot is a copy of a tree and its values.
type Snapshot struct {
	Name       string           `json:"name"`
	Counters   []Value          `json:"counters,omitempty"`
	Histograms []HistogramValue `json:"histograms,omitempty"`
	Children   []Snapshot       `json:"children,omitempty"`
}

// Snapshot reads the counters and histograms of n and of what is below it.
func (n *Node) Snapshot() Snapshot {
	n.tree.Lock()
	defer n.tree.Unlock()
	return n.snapshot()
}

// snapshot is Snapshot with the tree locked.
func (n *Node) snapshot() Snapshot {
	s := Snapshot{Name: n.name}
	for _, c := range n.counters {
		s.Counters = append(s.Counters, Value{c.name, c.counter.Load()})
	}
	for _, h := range n.histograms {
		v := h.histogram.Load()
		v.Name = h.name
		s.Histograms = append(s.Histograms, v)
	}
	for _, c := range n.children {
		s.Children = append(s.Children, c.snapshot())
	}
	return s
}

// String is the snapshot as JSON; with it a Node is an expvar.Var.
func (n *Node) String() string {
	text, err := json.Marshal(n.Snapshot())
	if err != nil { // strings and numbers: cannot be
		return fmt.Sprintf("%q", err)
	}
	return string(text)
}

// All yields each counter with its path: the names from the root of the snapshot,
// with slashes, then a dot and the name of the counter: "ucp/worker/ep#2.sends".
func (s Snapshot) All() iter.Seq2[string, uint64] {
	return func(yield func(string, uint64) bool) { s.walk("", yield) }
}

// AllHistograms is All for histograms.
func (s Snapshot) AllHistograms() iter.Seq2[string, HistogramValue] {
	return func(yield func(string, HistogramValue) bool) { s.walkHistograms("", yield) }
}

// walkHistograms yields the histograms below a path; false ends it.
func (s Snapshot) walkHistograms(above string, yield func(string, HistogramValue) bool) bool {
	path := above + s.Name
	for _, v := range s.Histograms {
		if !yield(path+"."+v.Name, v) {
			return false
		}
	}
	for _, c := range s.Children {
		if !c.walkHistograms(path+"/", yield) {
			return false
		}
	}
	return true
}

// walk yields the counters below a path; false ends it.
func (s Snapshot) walk(above string, yield func(string, uint64) bool) bool {
	path := above + s.Name
	for _, v := range s.Counters {
		if !yield(path+"."+v.Name, v.N) {
			return false
		}
	}
	for _, c := range s.Children {
		if !c.walk(path+"/", yield) {
			return false
		}
	}
	return true
}
