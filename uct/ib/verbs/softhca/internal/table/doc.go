// Package table has the segment by which a device tells its peers what they may do, and the claim words
// by which peers share the receives of an XRC SRQ. Its owner writes the table, peers map
// it read-only. Little endian, as both sides run on one machine.
//
//	0            header: magic, version; cookie (8 to 23); generation (24); closed (32);
//	             the shared XRC domains that the device is in (64 to 4095)
//	QPsAt        MaxQP entries of 64 bytes, by the low 16 bits of the QPN
//	MRsAt        MaxMR entries of 64 bytes, by the key without its variant byte
//	srqsAt       MaxXRCSRQ entries of 64 bytes, of XRC SRQs, by the low 16 bits of the number
//	Len          on the shm fabric: ShownRecvs receives of each XRC SRQ, 64 bytes each
//
// The functions check nothing: who reads an entry of a peer compares the number in it, and does not
// trust the rest.
package table
