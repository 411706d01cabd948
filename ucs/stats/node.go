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
	tree *sync.Mutex // one lock for all nodes of the tree

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

// Name returns the name, which is unique among the children of the parent.
func (n *Node) Name() string { return n.name }

// Child adds a node below n. If n already has a child with that name, the name of the new one is name#2, or has the next
// unused number.
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

// Add adds a counter to n. n must not have a counter with the same name yet. The node refers to c until the node is
// removed. A child and a counter may have the same name.
func (n *Node) Add(name string, c *Counter) {
	n.tree.Lock()
	defer n.tree.Unlock()
	n.counters = append(n.counters, namedCounter{name, c})
}

// Remove removes n and the nodes below it from the tree. The owner calls it when the object is closed. Idempotent. It has
// no effect on a root.
func (n *Node) Remove() {
	n.tree.Lock()
	defer n.tree.Unlock()
	if n.parent == nil {
		return
	}
	n.parent.children = slices.DeleteFunc(n.parent.children, func(c *Node) bool { return c == n })
	n.parent = nil
}

// find returns the child with that name; nil if there is none. The caller holds the lock of the tree.
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

// Snapshot returns the values of the counters and histograms of n and of all nodes below it.
func (n *Node) Snapshot() Snapshot {
	n.tree.Lock()
	defer n.tree.Unlock()
	return n.snapshot()
}

// snapshot is Snapshot for a caller that holds the lock of the tree.
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

// String returns the snapshot as JSON. It implements expvar.Var.
func (n *Node) String() string {
	text, err := json.Marshal(n.Snapshot())
	if err != nil { // not possible for strings and numbers
		return fmt.Sprintf("%q", err)
	}
	return string(text)
}

// All yields each counter with its path: the names of the nodes from the root of the snapshot, separated by slashes, and
// the name of the counter after a dot: "ucp/worker/ep#2.sends".
func (s Snapshot) All() iter.Seq2[string, uint64] {
	return func(yield func(string, uint64) bool) { s.walk("", yield) }
}

// AllHistograms is All for histograms.
func (s Snapshot) AllHistograms() iter.Seq2[string, HistogramValue] {
	return func(yield func(string, HistogramValue) bool) { s.walkHistograms("", yield) }
}

// walkHistograms yields the histograms below a path. It returns false if yield has returned false.
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

// walk yields the counters below a path. It returns false if yield has returned false.
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
