"""Operations on rows of different shapes, here and elsewhere."""
