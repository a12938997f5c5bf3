// Problems that break models, in an exported file; evaluation/stress.py has all of them.

function randomDigits(count) {
  const digits = Array.from({ length: count }, () => Math.floor(10 * Math.random()));
  digits[0] ||= 1;
  return digits.join("");
}

function palindrome(count) {
  const half = randomDigits(Math.ceil(count / 2));
  return half + [...half.slice(0, Math.floor(count / 2))].reverse().join("");
}

/** Two numbers whose digits add up to 9 in the columns of a chain, which one carry then crosses. */
function carryChain(count) {
  const first = randomDigits(count);
  const second = Array.from(first, (digit) => 9 - digit);
  const [a, b] = [[...first.slice(0, -1), "5"].join(""), [...second.slice(0, -1), 7].join("")];
  return [a, b.replace(/^0+(?=.)/, "")];
}

const hollow = (count) => (count < 3 ? "7".repeat(count) : `7${"0".repeat(count - 2)}3`);

/** By name: what it is, whether it is for sums only, and the operands of these lengths. */
export const CASES = {
  random: ["digits drawn at random", false, ([n, m]) => [randomDigits(n), randomDigits(m)]],
  "all carries": ["9…9 and 1, so that one carry goes through all columns", true,
    ([n]) => ["9".repeat(n), "1"]],
  "carry chain": ["one carry that goes through all columns", true, ([n]) => carryChain(n)],
  "unequal lengths": ["one operand much shorter than the other", false,
    ([n]) => [randomDigits(n), randomDigits(1)]],
  "zeros inside": ["almost only zeros between the first and the last digit", false,
    ([n, m]) => [hollow(n), hollow(m)]],
  palindromes: ["numbers that read the same from both ends", false,
    ([n, m]) => [palindrome(n), palindrome(m)]],
  "largest and smallest": ["nines only", false, ([n, m]) => ["9".repeat(n), "9".repeat(m)]],
  zero: ["0 as an operand", false, ([n]) => [randomDigits(n), "0"]],
};
