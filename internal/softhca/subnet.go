package softhca

import (
	"crypto/rand"
	"crypto/sha256"
	"os"
)

// subnetLen is the number of bytes of a GID, behind fe80, that identify the subnet.
const subnetLen = 6

// subnet returns the part of a GID that devices share if they can reach each other. On loop it is
// different for each device. On shm it is the same for all processes of one boot of one host that
// have the same abstract sockets, which are those of a network namespace. Values that cannot be
// read are omitted, so that devices then try to connect.
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
