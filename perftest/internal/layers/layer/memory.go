package layer

import (
	"fmt"
	"slices"
	"strings"
)

// Memory is the class of the buffers of both sides. The zero value is Allocated.
type Memory uint8

// Classes of memory.
const (
	Allocated Memory = iota // allocated by the transport
	Mapped                  // of the process, registered with the transport
	Plain                   // of the process; operations are not given a registration
	numMemories
)

var memoryNames = [numMemories]string{"alloc", "mapped", "plain"}

// String returns the name that ParseMemory accepts.
func (m Memory) String() string {
	if m < numMemories {
		return memoryNames[m]
	}
	return fmt.Sprintf("Memory(%d)", uint8(m))
}

// MemoryNames lists the names of the classes; the first is that of Allocated.
func MemoryNames() []string { return slices.Clone(memoryNames[:]) }

// ParseMemory returns the class with a name.
func ParseMemory(name string) (Memory, error) {
	if m := slices.Index(memoryNames[:], name); m >= 0 {
		return Memory(m), nil
	}
	return 0, fmt.Errorf("unknown memory %q; there are %s", name, strings.Join(memoryNames[:], ", "))
}
