package softhca

import (
	"crypto/rand"
	"crypto/sha256"
	"os"
)

// subnetLen is how many bytes of a GID, behind fe80, name the subnet.
const subnetLen = 6

// subnet is the part of a GID that devices share if they can reach each other:
// on loop nobody does; on shm the processes of one boot of one host that see the
// same abstract sockets, which are those of one network namespace. What cannot be
// read is left out, so that in doubt devices try.
func subnet(f Fabric) (id [subnetLen]byte, err error) {
	if f == FabricLoop {
		_, err = rand.Read(id[:])
		return id, err
	}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	netns, _ := os.Readlink("/proc/self/ns/net")
	sum := sha256.Sum256([]byte("gucx shm subnet\n" + string(boot) + netns))
	copy(id[:], sum[:])
	return id, nil
}
