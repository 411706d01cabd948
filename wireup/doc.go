// Package wireup has types that describe how two workers connect, for programs that print or check it.
//
//   - [Address] is the address of a worker: its transports, their capabilities and costs.
//     [UnpackAddress] decodes what the method Address of a worker of package ucp returns.
//   - [Role] is the purpose for which a connection uses a transport, such as put and get.
//   - [Choice] lists the pairs of a local and a remote transport that were considered for a role: the cost of each pair, and the
//     reason if a pair cannot be used. EPInfo.Choices of package ucp has one Choice for each role.
//
// Package ucp makes the choice and connects the workers.
//
// # Roles
//
// A role has one lane, which is a pair of transports. The bandwidth roles, [RMABW] and [AMBW], may have several lanes, which
// share the data in proportion to their bandwidth. One lane may have several roles.
//
// # Scores
//
// The score of a pair is the inverse of its cost, [PairCost], for an operation of the role. Costs in an address are rounded, and
// both sides compute with the rounded values, so that they choose the same pairs. Equal scores are decided by the priority of the
// transports, then by their names and positions in the addresses.
package wireup
