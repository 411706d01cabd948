// Package table has the layout of the table of a device, which describes its QPs, regions and SRQs
// to peers, and of the claim words, with which peers share the receives of an XRC SRQ. The owner
// writes the table; peers map it read-only. Both sides run on one machine, so values are in native
// byte order.
//
//	0            header: magic, version; cookie (8 to 23); generation (24); closed (32);
//	             the shared XRC domains of the device (64 to 4095)
//	QPsAt        MaxQP entries of 64 bytes, by the low 16 bits of the QPN
//	MRsAt        MaxMR entries of 64 bytes, by the key without its variant byte
//	srqsAt       MaxXRCSRQ entries of 64 bytes, of XRC SRQs, by the low 16 bits of the number
//	Len          on the shm fabric: ShownRecvs receives of each XRC SRQ, 64 bytes each
//
// The functions check nothing: the reader of a peer's entry must compare the number in the entry,
// and must not trust the other fields.
package table
