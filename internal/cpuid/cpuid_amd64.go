package cpuid

// ID executes CPUID with leaf in EAX and 0 in ECX. It takes some 100 ns, and in a virtual machine more than 1 us.
//
//go:noescape
func ID(leaf uint32) (eax, ebx, ecx, edx uint32)

// AMDFamily returns the family of a CPU of AMD, which stands for its microarchitecture: 0x19 is Zen 3 and 4, 0x1a Zen 5.
// It returns 0 for CPUs of others.
func AMDFamily() uint32 {
	_, ebx, ecx, edx := ID(0)
	eax, _, _, _ := ID(1)
	return amdFamily([3]uint32{ebx, edx, ecx}, eax)
}

// authenticAMD is the vendor in EBX, EDX and ECX of leaf 0 (AMD64 Architecture Programmer's Manual volume 3, E.3.1).
var authenticAMD = [3]uint32{0x68747541, 0x69746e65, 0x444d4163}

// amdFamily decodes the signature in EAX of leaf 1 (AMD64 Architecture Programmer's Manual volume 3, E.3.2).
func amdFamily(vendor [3]uint32, signature uint32) uint32 {
	const extended = 0xf // base family to which the extended family is added
	if vendor != authenticAMD {
		return 0
	}
	base := signature >> 8 & 0xf
	if base != extended {
		return base
	}
	return base + signature>>20&0xff
}
